// Package elfdeps finds the shared libraries that a set of ELF files needs at run time: it follows DT_NEEDED
// as the dynamic loader does (DT_RUNPATH, then the loader's cache), and compares symbol versions, so that a
// library that is too old is named here and not by a crashing container. It loads and runs nothing.
package elfdeps

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Library is a shared library: the name that others need it by, and the file.
type Library struct{ Name, Path string }

// Closure is all that a set of files needs.
type Closure struct {
	Interpreter string    // the dynamic loader, as the programs name it; "" if none does
	Libraries   []Library // by name; without the files that were given
	Outside     []string  // what is needed of Resolver.Outside, by name
}

// Info is what one file says about itself.
type Info struct {
	Machine     string // class and architecture
	Interpreter string
	Needed      []string
	RunPath     []string            // $ORIGIN is resolved
	Wants       map[string][]string // symbol versions wanted of each library
	Defines     []string            // symbol versions defined
}

// Resolver finds libraries.
type Resolver struct {
	Cache Cache
	Read  func(path string) (Info, error) // ReadFile, but in tests
	// Outside are libraries that come from elsewhere when the files run, such as a driver's. They are looked for nowhere: one
	// that happens to be on this machine is not what the files will meet.
	Outside []string
}

type walk struct {
	Resolver
	machine string
	own     map[string]string // base name -> path, of the files given
	found   map[string]Library
	outside map[string]bool
	infos   map[string]Info // by path
	queue   []string
	interp  string
}

// Closure follows what files need, and the libraries named in extra: those that a program opens by name while
// it runs, which no header shows.
func (r Resolver) Closure(files, extra []string) (Closure, error) {
	w := walk{Resolver: r, own: map[string]string{}, found: map[string]Library{}, outside: map[string]bool{}, infos: map[string]Info{}}
	for _, f := range files {
		w.own[filepath.Base(f)] = f
		w.queue = append(w.queue, f)
	}
	for len(w.queue) > 0 {
		f := w.queue[0]
		w.queue = w.queue[1:]
		if err := w.visit(f); err != nil {
			return Closure{}, err
		}
		if len(w.queue) == 0 && len(extra) > 0 {
			name := extra[0]
			extra = extra[1:]
			if err := w.need(name, nil, "the program, while it runs,"); err != nil {
				return Closure{}, err
			}
		}
	}
	c := Closure{Interpreter: w.interp, Outside: sortedKeys(w.outside)}
	for _, l := range w.found {
		c.Libraries = append(c.Libraries, l)
	}
	slices.SortFunc(c.Libraries, func(a, b Library) int { return strings.Compare(a.Name, b.Name) })
	return c, w.versions()
}

func (w *walk) visit(file string) error {
	i, err := w.Read(file)
	if err != nil {
		return fmt.Errorf("read the ELF header of %s: %w", file, err)
	}
	w.infos[file] = i
	if w.machine == "" {
		w.machine = i.Machine
	}
	if i.Machine != w.machine {
		return fmt.Errorf("%s is for %s, the others are for %s", file, i.Machine, w.machine)
	}
	if i.Interpreter != "" {
		w.interp = i.Interpreter
	}
	for _, name := range i.Needed {
		if err := w.need(name, i.RunPath, file); err != nil {
			return err
		}
	}
	return nil
}

// need resolves name for by, and queues what it finds.
func (w *walk) need(name string, runPath []string, by string) error {
	if _, ok := w.own[name]; ok {
		return nil
	}
	if _, ok := w.found[name]; ok {
		return nil
	}
	if slices.Contains(w.Outside, name) {
		w.outside[name] = true
		return nil
	}
	var candidates []string
	for _, dir := range runPath {
		candidates = append(candidates, filepath.Join(dir, name))
	}
	for _, path := range append(candidates, w.Cache[name]...) {
		if i, err := w.Read(path); err == nil && i.Machine == w.machine {
			w.found[name] = Library{name, path}
			w.queue = append(w.queue, path)
			return nil
		}
	}
	return &MissingError{Name: name, By: by}
}

// MissingError says that a library is not on this machine.
type MissingError struct{ Name, By string }

// Error implements error.
func (e *MissingError) Error() string {
	return fmt.Sprintf("%s needs %s, which is not among this machine's libraries (ldconfig -p)", e.By, e.Name)
}

// versions fails on a symbol version that a file wants and the library found does not define.
func (w *walk) versions() error {
	for _, file := range sortedKeys(w.infos) {
		for _, name := range sortedKeys(w.infos[file].Wants) {
			path := w.own[name]
			if lib, ok := w.found[name]; ok {
				path = lib.Path
			}
			if path == "" {
				continue // it comes from elsewhere
			}
			for _, v := range w.infos[file].Wants[name] {
				if !slices.Contains(w.infos[path].Defines, v) {
					return fmt.Errorf("%s needs %s of %s, and %s lacks it: build on a newer system (Debian 12, Ubuntu 22.04 or later)", file, v, name, path)
				}
			}
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// ReadFile reads what the ELF file at path says about itself.
func ReadFile(path string) (Info, error) {
	f, err := elf.Open(path)
	if err != nil {
		return Info{}, err
	}
	defer f.Close()
	i := Info{Machine: f.Class.String() + " " + f.Machine.String(), Wants: map[string][]string{}}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			text := make([]byte, p.Filesz)
			if _, err := p.ReadAt(text, 0); err != nil {
				return i, err
			}
			i.Interpreter = strings.TrimRight(string(text), "\x00")
		}
	}
	if f.SectionByType(elf.SHT_DYNAMIC) == nil {
		return i, nil // static
	}
	if i.Needed, err = f.ImportedLibraries(); err != nil {
		return i, err
	}
	if i.RunPath, err = runPath(f, filepath.Dir(path)); err != nil {
		return i, err
	}
	return i, i.readVersions(f)
}

func runPath(f *elf.File, origin string) ([]string, error) {
	var dirs []string
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		values, err := f.DynString(tag)
		if err != nil {
			return nil, err
		}
		for _, v := range values {
			for dir := range strings.SplitSeq(v, ":") {
				if dir != "" {
					dirs = append(dirs, strings.NewReplacer("${ORIGIN}", origin, "$ORIGIN", origin).Replace(dir))
				}
			}
		}
	}
	return dirs, nil
}

func (i *Info) readVersions(f *elf.File) error {
	if f.SectionByType(elf.SHT_GNU_VERNEED) != nil {
		needs, err := f.DynamicVersionNeeds()
		if err != nil {
			return err
		}
		for _, n := range needs {
			for _, d := range n.Needs {
				if d.Flags&elf.VER_FLG_WEAK == 0 {
					i.Wants[n.Name] = append(i.Wants[n.Name], d.Dep)
				}
			}
		}
	}
	if f.SectionByType(elf.SHT_GNU_VERDEF) == nil {
		return nil
	}
	defined, err := f.DynamicVersions()
	if err != nil {
		return err
	}
	for _, d := range defined {
		i.Defines = append(i.Defines, d.Name)
	}
	return nil
}
