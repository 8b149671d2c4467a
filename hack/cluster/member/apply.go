package member

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// observe reads what a root's plan must know of this machine; the caller is in the init's namespaces, and
// its groups were made before.
func observe() (host, error) {
	h := host{top: map[string]string{}, aliases: map[string]string{}}
	for _, name := range topWanted {
		if link, err := os.Readlink("/" + name); err == nil {
			h.top[name] = link
		} else if fi, err := os.Stat("/" + name); err == nil && fi.IsDir() {
			h.top[name] = ""
		}
	}
	for _, name := range etcWanted {
		if _, err := os.Stat("/etc/" + name); err == nil {
			h.etc = append(h.etc, name)
		}
	}
	for _, name := range devicesWanted {
		if _, err := os.Stat("/dev/" + name); err == nil {
			h.devices = append(h.devices, name)
		}
	}
	all, _, err := hierarchies()
	if err != nil {
		return h, err
	}
	for _, dir := range all {
		rel, err := filepath.Rel(cgroupFS, dir)
		if err != nil {
			return h, err
		}
		h.groups = append(h.groups, rel)
	}
	entries, err := os.ReadDir(cgroupFS)
	for _, e := range entries {
		if link, err := os.Readlink(filepath.Join(cgroupFS, e.Name())); err == nil {
			h.aliases[e.Name()] = link
		}
	}
	return h, err
}

func apply(steps []step) error {
	for _, s := range steps {
		if err := s.apply(); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

func (s step) apply() error {
	switch s.do {
	case "mkdir":
		return os.MkdirAll(s.to, 0o755)
	case "mount":
		return syscall.Mount(s.fsType, s.to, s.fsType, s.flags, s.data)
	case "unmount":
		return syscall.Unmount(s.to, syscall.MNT_DETACH)
	case "bind":
		return s.bind()
	case "copy":
		return copyTree(s.from, s.to)
	case "write":
		return os.WriteFile(s.to, []byte(s.data), 0o644)
	case "link":
		if err := os.Remove(s.to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return os.Symlink(s.from, s.to)
	case "node":
		var st syscall.Stat_t
		if err := syscall.Stat(s.from, &st); err != nil {
			return err
		}
		if err := syscall.Mknod(s.to, st.Mode, int(st.Rdev)); err != nil {
			return err
		}
		return os.Chmod(s.to, os.FileMode(st.Mode&0o777))
	}
	return errors.New("unknown step")
}

func (s step) bind() error {
	flags := uintptr(syscall.MS_BIND)
	if s.tree {
		flags |= syscall.MS_REC
	}
	if err := syscall.Mount(s.from, s.to, "", flags, ""); err != nil || !s.readOnly {
		return err
	}
	return syscall.Mount("", s.to, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
}

// copyTree copies files, links and folders.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		dst := to + strings.TrimPrefix(name, from)
		switch {
		case d.IsDir():
			return os.MkdirAll(dst, 0o755)
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(name)
			if err != nil {
				return err
			}
			return os.Symlink(link, dst)
		case d.Type().IsRegular():
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			return os.WriteFile(dst, text, 0o644)
		}
		return nil
	})
}

// enterRoot makes root the init's own, and everything else of the machine unreachable.
func enterRoot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := syscall.PivotRoot(".", "old"); err != nil {
		return fmt.Errorf("move into the root %s: %w", root, err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := syscall.Unmount("/old", syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the machine's root: %w", err)
	}
	if err := os.Remove("/old"); err != nil {
		return err
	}
	// The kubelet wants to share mounts with its containers.
	if err := syscall.Mount("", "/", "", syscall.MS_SHARED|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("share the mounts of the root: %w", err)
	}
	return nil
}
