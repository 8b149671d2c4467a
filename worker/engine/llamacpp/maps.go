package llamacpp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mapping is a part of a file in this process's memory.
type mapping struct {
	from, to uintptr
	path     string
}

// mappings returns those of files, links resolved.
func mappings() ([]mapping, error) {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	var all []mapping
	for line := range strings.Lines(string(text)) {
		at := strings.IndexByte(line, '/')
		if at < 0 {
			continue
		}
		m := mapping{path: strings.TrimSuffix(line[at:], "\n")}
		if _, err := fmt.Sscanf(line, "%x-%x", &m.from, &m.to); err == nil {
			all = append(all, m)
		}
	}
	return all, nil
}

// mapped returns the library's files below dir that this process has mapped, links resolved.
func mapped(dir string) ([]string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	all, err := mappings()
	if err != nil {
		return nil, err
	}
	var files []string
	seen := map[string]bool{}
	for _, m := range all {
		if strings.Contains(filepath.Base(m.path), ".so") && filepath.Dir(m.path) == dir && !seen[m.path] {
			seen[m.path] = true
			files = append(files, m.path)
		}
	}
	return files, nil
}

// giveBack takes the pages of the weights out of this process's memory. They stay in the system's cache, and those that
// are read again come back by themselves. Many don't: on some CPUs, and for GPUs, the library has copied the weights into
// another order and never reads the file again.
func giveBack(weights string) {
	path, err := filepath.EvalSymlinks(weights)
	if err != nil {
		return
	}
	all, err := mappings()
	if err != nil {
		return
	}
	for _, m := range all {
		if m.path == path {
			// An error would leave things as they are.
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED)
		}
	}
}
