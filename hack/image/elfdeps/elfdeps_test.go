package elfdeps

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const amd64 = "ELFCLASS64 EM_X86_64"

// disk is a set of files that need one another.
type disk map[string]Info

func (d disk) read(path string) (Info, error) {
	i, ok := d[path]
	if !ok {
		return i, os.ErrNotExist
	}
	if i.Machine == "" {
		i.Machine = amd64
	}
	return i, nil
}

func TestLibrariesAreFoundAsTheLoaderFindsThem(t *testing.T) {
	cache := Cache{"libc.so.6": {"/lib32/libc.so.6", "/lib/libc.so.6"}, "libm.so.6": {"/lib/libm.so.6"}, "libffi.so.8": {"/lib/libffi.so.8"}, "liba.so": {"/lib/liba.so"}}
	system := func(more disk) disk {
		d := disk{"/lib/libc.so.6": {Defines: []string{"GLIBC_2.36"}}, "/lib32/libc.so.6": {Machine: "ELFCLASS32 EM_386"},
			"/lib/libm.so.6": {Needed: []string{"libc.so.6"}}, "/lib/libffi.so.8": {Needed: []string{"libc.so.6"}}, "/lib/liba.so": {}}
		for k, v := range more {
			d[k] = v
		}
		return d
	}
	for name, c := range map[string]struct {
		disk         disk
		files, extra []string
		want         string // NAME=PATH …, or part of the error
		fails        bool
	}{
		"what a library needs is needed too": {
			disk: system(disk{"/p": {Needed: []string{"libm.so.6"}}}), files: []string{"/p"},
			want: "libc.so.6=/lib/libc.so.6 libm.so.6=/lib/libm.so.6"},
		"a library of another architecture is passed over": {
			disk: system(disk{"/p": {Needed: []string{"libc.so.6"}}}), files: []string{"/p"}, want: "libc.so.6=/lib/libc.so.6"},
		"the run path comes before the cache": {
			disk:  system(disk{"/p": {Needed: []string{"liba.so"}, RunPath: []string{"/own"}}, "/own/liba.so": {}}),
			files: []string{"/p"}, want: "liba.so=/own/liba.so"},
		"files that were given need no finding": {
			disk:  system(disk{"/own/liba.so": {Needed: []string{"libb.so"}}, "/own/libb.so": {Needed: []string{"liba.so"}}}),
			files: []string{"/own/liba.so", "/own/libb.so"}, want: ""},
		"a library opened while running brings its own": {
			disk: system(disk{"/p": {}}), files: []string{"/p"}, extra: []string{"libffi.so.8"},
			want: "libc.so.6=/lib/libc.so.6 libffi.so.8=/lib/libffi.so.8"},
		"a static program needs nothing": {disk: disk{"/p": {}}, files: []string{"/p"}, want: ""},
		"a missing library is named with who needs it": {
			disk: disk{"/p": {Needed: []string{"libx.so.1"}}}, files: []string{"/p"}, want: "/p needs libx.so.1", fails: true},
		"a library that is too old is named": {
			disk:  system(disk{"/p": {Needed: []string{"libc.so.6"}, Wants: map[string][]string{"libc.so.6": {"GLIBC_2.38"}}}}),
			files: []string{"/p"}, want: "/p needs GLIBC_2.38 of libc.so.6, and /lib/libc.so.6 lacks it", fails: true},
		"a given library that is too old is named": {
			disk:  disk{"/p": {Needed: []string{"liba.so"}, Wants: map[string][]string{"liba.so": {"A_2"}}}, "/own/liba.so": {Defines: []string{"A_1"}}},
			files: []string{"/p", "/own/liba.so"}, want: "/p needs A_2 of liba.so, and /own/liba.so lacks it", fails: true},
		"files of two architectures do not mix": {
			disk: disk{"/p": {}, "/q": {Machine: "ELFCLASS64 EM_AARCH64"}}, files: []string{"/p", "/q"}, want: "/q is for ELFCLASS64 EM_AARCH64", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Resolver{Cache: cache, Read: c.disk.read}.Closure(c.files, c.extra)
			if c.fails {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("error %v, expected one with %q", err, c.want)
				}
				return
			}
			var list []string
			for _, l := range got.Libraries {
				list = append(list, l.Name+"="+l.Path)
			}
			if s := strings.Join(list, " "); err != nil || s != c.want {
				t.Errorf("got %q, %v; expected %q", s, err, c.want)
			}
		})
	}
}

func TestOnlyWhatIsNamedMayComeFromElsewhere(t *testing.T) {
	d := disk{"/p": {Needed: []string{"libdriver.so.1", "liba.so"}, Wants: map[string][]string{"libdriver.so.1": {"DRIVER_9"}}},
		"/lib/liba.so": {Needed: []string{"libdriver.so.1"}}, "/lib/libdriver.so.1": {}}
	r := Resolver{Cache: Cache{"liba.so": {"/lib/liba.so"}, "libdriver.so.1": {"/lib/libdriver.so.1"}}, Read: d.read,
		Outside: []string{"libdriver.so.1", "libother.so.1"}}
	got, err := r.Closure([]string{"/p"}, nil)
	if err != nil || len(got.Libraries) != 1 || got.Libraries[0].Name != "liba.so" || !slices.Equal(got.Outside, []string{"libdriver.so.1"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	d["/lib/liba.so"] = Info{Needed: []string{"libx.so.1"}}
	if _, err := r.Closure([]string{"/p"}, nil); err == nil || !strings.Contains(err.Error(), "/lib/liba.so needs libx.so.1") {
		t.Errorf("error %v, expected one that names libx.so.1", err)
	}
}

func TestAMissingLibraryCanBeToldFromOtherErrors(t *testing.T) {
	_, err := Resolver{Read: disk{"/p": {}}.read}.Closure([]string{"/p"}, []string{"libffi.so.8"})
	var missing *MissingError
	if !errors.As(err, &missing) || missing.Name != "libffi.so.8" {
		t.Errorf("got %v, expected a MissingError of libffi.so.8", err)
	}
}

func TestTheCacheIsReadAsLdconfigPrintsIt(t *testing.T) {
	c := ParseCache("2 libs found in cache `/etc/ld.so.cache'\n\tlibz.so.1 (libc6,x86-64) => /lib/libz.so.1\n\tlibz.so.1 (libc6) => /lib32/libz.so.1\nCache generated by: ldconfig\n")
	if len(c) != 1 || strings.Join(c["libz.so.1"], " ") != "/lib/libz.so.1 /lib32/libz.so.1" {
		t.Errorf("got %v", c)
	}
}

// The loader itself is the judge: LD_TRACE_LOADED_OBJECTS is what ldd uses.
func TestARealProgramNeedsWhatTheLoaderLoads(t *testing.T) {
	program, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("this machine has no bash")
	}
	cache, err := Ldconfig(t.Context())
	if err != nil {
		t.Skipf("this machine has no ldconfig: %v", err)
	}
	got, err := Resolver{Cache: cache, Read: ReadFile}.Closure([]string{program}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Interpreter == "" {
		t.Skip("bash is static here")
	}
	cmd := exec.Command(program)
	cmd.Env = []string{"LD_TRACE_LOADED_OBJECTS=1"}
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	loaded := ParseCache(strings.ReplaceAll(string(text), " => ", " () => "))
	for _, l := range got.Libraries {
		if l.Name != lastPart(got.Interpreter) && len(loaded[l.Name]) == 0 {
			t.Errorf("%s is not loaded; the loader loads:\n%s", l.Name, text)
		}
	}
	for name := range loaded {
		found := false
		for _, l := range got.Libraries {
			found = found || l.Name == name
		}
		if !found {
			t.Errorf("%s is loaded, and not among %v", name, got.Libraries)
		}
	}
}

func lastPart(path string) string { return path[strings.LastIndex(path, "/")+1:] }
