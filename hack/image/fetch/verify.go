package fetch

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// verify compares every file and link of p in dir. A missing one is an os.ErrNotExist.
func verify(dir string, p Package) error {
	for _, f := range p.Files {
		if err := compare(filepath.Join(dir, f.Name), "sha256:"+f.SHA256); err != nil {
			return err
		}
	}
	for _, l := range p.Links {
		if to, err := os.Readlink(filepath.Join(dir, l.Name)); err != nil {
			return err
		} else if to != l.Target {
			return fmt.Errorf("%s points to %s, expected %s", l.Name, to, l.Target)
		}
	}
	return nil
}

// compare fails if the digest of file is not want.
func compare(file, want string) error {
	kind, _, _ := strings.Cut(want, ":")
	var h hash.Hash
	switch kind {
	case "sha256":
		h = sha256.New()
	case "sha512":
		h = sha512.New()
	default:
		return fmt.Errorf("compare %s: unknown kind of digest %q", filepath.Base(file), kind)
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := kind + ":" + hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%s has digest %s, expected %s", filepath.Base(file), got, want)
	}
	return nil
}

// unpack writes the files and links of p from its archive to dir; the rest of the archive stays where it is.
func unpack(archive, dir string, p Package) error {
	want := map[string]string{}
	for _, f := range p.Files {
		want[f.From] = f.Name
	}
	from := fromTar
	if p.Client == Pip {
		from = fromZip
	}
	if err := from(archive, func(name string, content io.Reader) error {
		to, ok := want[name]
		if !ok {
			return nil
		}
		delete(want, name)
		return write(filepath.Join(dir, to), content)
	}); err != nil {
		return fmt.Errorf("unpack %s: %w", p.Spec, err)
	}
	for name := range want {
		return fmt.Errorf("unpack %s: it holds no file %s", p.Spec, name)
	}
	for _, l := range p.Links {
		if err := os.Symlink(l.Target, filepath.Join(dir, l.Name)); err != nil {
			return err
		}
	}
	return nil
}

func write(file string, content io.Reader) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

func fromTar(archive string, each func(name string, content io.Reader) error) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeReg {
			if err := each(h.Name, t); err != nil {
				return err
			}
		}
	}
}

func fromZip(archive string, each func(name string, content io.Reader) error) error {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer z.Close()
	for _, e := range z.File {
		if e.Mode()&fs.ModeType != 0 {
			continue
		}
		c, err := e.Open()
		if err != nil {
			return err
		}
		if err := errors.Join(each(e.Name, c), c.Close()); err != nil {
			return err
		}
	}
	return nil
}
