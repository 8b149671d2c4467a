package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringfleet/ringfleet/worker/weights/source/sourcetest"
)

// disk mounts a disk of so many bytes for the cache.
func disk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("a disk of its own can't be mounted here (user %d): %v", os.Getuid(), err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all of a disk but so many bytes.
func fill(t *testing.T, dir string, leave int64) (path string) {
	t.Helper()
	path = filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n := free(t, dir) - leave; n > 0 {
		if err := unix.Fallocate(int(f.Fd()), 0, 0, n); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func free(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// percents are how much of a file finds room.
var percents = []int64{1, 50, 99}

func TestADiskThatIsTooFullIsRefusedBeforeTheFirstByte(t *testing.T) {
	for _, percent := range percents {
		t.Run(fmt.Sprintf("room for %d per cent", percent), func(t *testing.T) {
			hub, b := oneFile()
			where := disk(t, 16*mib)
			r := newRig(t, hub, func(o *Options) { o.CacheDir = filepath.Join(where, "cache") })
			filler := fill(t, where, int64(len(b))*percent/100+64<<10)
			_, err := r.Ensure(r.ctx(), Request{URI: "hf://org/m"}, nil)
			refused(t, err, NoSpace, "2.0 MiB are needed", "of the disk are free")
			if hub.StoreRequests() != 0 || len(r.left("partial")) != 0 {
				t.Errorf("%d requests were made for the file, and %q is left", hub.StoreRequests(), r.left("partial"))
			}
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			if path := r.ensure(Request{URI: "hf://org/m"}); !bytes.Equal(content(t, path), b) {
				t.Error("with room it is another file")
			}
		})
	}
}

// fillsAt makes the store fill the disk once so much of the file was asked for.
func fillsAt(t *testing.T, hub *sourcetest.Hub, where string, percent int64) {
	at := 1 + int(9*percent/100) // of nine requests
	hub.Fault = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
		if n == at {
			fill(t, where, 0)
		}
		return false
	}
}

func TestADiskThatFillsUpMeanwhileLeavesACleanCache(t *testing.T) {
	for _, percent := range percents {
		t.Run(fmt.Sprintf("at %d per cent", percent), func(t *testing.T) {
			hub, b := oneFile()
			where := disk(t, 16*mib)
			r := newRig(t, hub, func(o *Options) { o.CacheDir, o.Connections = filepath.Join(where, "cache"), 1 })
			// As on file systems that can't reserve.
			r.tune.reserve = func(f *os.File, n int64) error { return f.Truncate(n) }
			fillsAt(t, hub, where, percent)
			_, err := r.Ensure(r.ctx(), Request{URI: "hf://org/m"}, nil)
			refused(t, err, NoSpace, "is full", "no space left on device")
			if left := r.left("partial"); len(left) != 0 {
				t.Errorf("%q is left", left)
			}
			if err := os.Remove(filepath.Join(where, "filler")); err != nil {
				t.Fatal(err)
			}
			hub.Fault = nil
			if path := r.again().ensure(Request{URI: "hf://org/m"}); !bytes.Equal(content(t, path), b) {
				t.Error("with room it is another file")
			}
		})
	}
}

func TestReservedRoomIsNotTakenByOthers(t *testing.T) {
	hub, b := oneFile()
	where := disk(t, 16*mib)
	r := newRig(t, hub, func(o *Options) { o.CacheDir = filepath.Join(where, "cache") })
	hub.Fault = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
		if n == 1 {
			fill(t, where, 256<<10) // for the journal
		}
		return false
	}
	if path := r.ensure(Request{URI: "hf://org/m"}); !bytes.Equal(content(t, path), b) {
		t.Error("another file")
	}
}

func TestACacheOnAFullDiskMakesRoomOfItsOwn(t *testing.T) {
	hub, _ := oneFile()
	hub.Files["n.gguf"] = sourcetest.GGUF(3*mib, 7)
	where := disk(t, 8*mib)
	r := newRig(t, hub, func(o *Options) { o.CacheDir = filepath.Join(where, "cache") })
	r.ensure(Request{URI: "hf://org/m", File: "m.gguf"})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	filler := fill(t, where, 0)
	next := r.again()
	_, err := next.Ensure(next.ctx(), Request{URI: "hf://org/m", File: "n.gguf"}, nil)
	refused(t, err, NoSpace, "are needed")
	info, err := os.Stat(filler)
	if err != nil || os.Truncate(filler, info.Size()-5*mib/2) != nil {
		t.Fatal(err)
	}
	if path := next.ensure(Request{URI: "hf://org/m", File: "n.gguf"}); !bytes.Equal(content(t, path), hub.Files["n.gguf"]) {
		t.Error("another file")
	}
}

func TestTheCachesSizeIsKeptByWhatNobodyUses(t *testing.T) {
	hub := &sourcetest.Hub{Files: map[string][]byte{}}
	for i, name := range []string{"a.gguf", "b.gguf", "c.gguf", "d.gguf"} {
		hub.Files[name] = sourcetest.GGUF(mib, uint64(i))
	}
	r := newRig(t, hub)
	r.tune.cacheBytes = 3*mib + mib/2
	get := func(f *rig, name string) error {
		f.clock.NewTimer(1e9) // uses are a second apart
		_, err := f.Ensure(f.ctx(), Request{URI: "hf://org/m", File: name}, nil)
		return err
	}
	user := r.again()
	user.tune.cacheBytes = r.tune.cacheBytes
	user.clock = r.clock
	for _, err := range []error{get(user, "a.gguf"), get(r, "b.gguf"), get(r, "c.gguf")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	refused(t, get(r, "d.gguf"), NoSpace, "used by 2 processes", "the cache may hold 3.5 MiB")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	next := r.again()
	next.tune.cacheBytes = r.tune.cacheBytes
	if err := get(next, "d.gguf"); err != nil {
		t.Fatal(err)
	}
	blobs := strings.Join(r.left("blobs"), " ")
	for name, want := range map[string]bool{"a.gguf": true, "b.gguf": false, "c.gguf": true, "d.gguf": true} {
		if strings.Contains(blobs, sourcetest.Sum(hub.Files[name])) != want {
			t.Errorf("%s is in the cache: %v, want %v", name, !want, want)
		}
	}
	if len(r.left("models")) != 3 {
		t.Errorf("%d folders of models are left, want 3", len(r.left("models")))
	}
}

func TestACacheThatCantBeWrittenIsSaidAfterOneTry(t *testing.T) {
	hub, _ := oneFile()
	for name, prepare := range map[string]func(t *testing.T, dir string) error{
		"a file in its place": func(_ *testing.T, dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"another layout": func(_ *testing.T, dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "version"), []byte("other 7\n"), 0o600))
		},
		"a read-only disk": func(t *testing.T, dir string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, ""); err != nil {
				t.Skipf("a disk of its own can't be mounted here: %v", err)
			}
			t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, &sourcetest.Hub{Files: hub.Files}, func(o *Options) { o.CacheDir = filepath.Join(t.TempDir(), "c") })
			if err := prepare(t, r.dir); err != nil {
				t.Fatal(err)
			}
			_, err := r.Ensure(r.ctx(), Request{URI: "hf://org/m"}, nil)
			refused(t, err, CacheUnwritable, r.dir)
			if r.hub.HubRequests()+r.hub.StoreRequests() != 0 {
				t.Error("the source was asked all the same")
			}
		})
	}
}
