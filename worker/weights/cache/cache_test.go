package cache

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	kib = 1 << 10
	mib = 1 << 20
)

// node is a cache as one node sees it.
type node struct {
	*Cache
	t     testing.TB
	clock *clocktesting.FakeClock
}

// open opens the cache in dir on a node. Its clock stands still.
func open(t testing.TB, dir, boot string, most int64) *node {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Now())
	c, err := Open(dir, Options{Clock: clock, MaxBytes: most, PieceBytes: 4 * kib, Boot: boot})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{c, t, clock}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// sum names a blob for tests: what is in it doesn't matter to the cache.
func sum(name string) string { return Key(name) }

// add puts a blob of size bytes into the cache, used by n, at a time of its own.
func (n *node) add(name string, size int) string {
	n.t.Helper()
	n.clock.Step(time.Second)
	p, err := n.Partial(sum(name), int64(size), "v")
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := p.WriteAt(bytes.Repeat([]byte{1}, size), 0); err != nil {
		n.t.Fatal(err)
	}
	path, err := n.Commit(p, sum(name))
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.Use(sum(name)); err != nil {
		n.t.Fatal(err)
	}
	return path
}

func (n *node) has(name string) bool {
	_, ok := n.Blob(sum(name), -1)
	return ok
}

func TestAHolderOnAnotherNodeKeepsOthersAwayWhileItLives(t *testing.T) {
	dir := t.TempDir()
	there, here := open(t, dir, "there", 0), open(t, dir, "here", 0)
	held, err := there.Lock(t.Context(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	held.Progress(3, 10)
	there.clock.Step(beat)
	record := awaitRecord(t, dir, func(h Holder) bool { return h.Done == 3 && h.Total == 10 && h.Boot == "there" })
	// The kernel knows nothing of it here, as on a file system with locks of its own in each node.
	held.f.Close()
	var w watch
	for range 100 {
		h := record
		h.Beat++
		record = h
		rewrite(t, dir, h)
		if l, holder, err := here.try("k", &w); l != nil || err != nil || holder.Done != 3 {
			t.Fatalf("got %v, %+v, %v while the other lives", l, holder, err)
		}
		here.clock.Step(stale - time.Second)
	}
	here.clock.Step(time.Second)
	l, _, err := here.try("k", &w)
	if l == nil || err != nil {
		t.Fatalf("it is not free after %s of silence: %v", stale, err)
	}
	l.Unlock()
	close(held.stop)
	held.beating.Wait()
}

func awaitRecord(t *testing.T, dir string, is func(Holder) bool) Holder {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		b, _ := os.ReadFile(filepath.Join(dir, "locks", "k"))
		if h := holderOf(b); is(h) {
			return h
		}
	}
	t.Fatal("the record never came")
	return Holder{}
}

func rewrite(t *testing.T, dir string, h Holder) {
	t.Helper()
	b := []byte(`{"boot":"` + h.Boot + `","beat":` + string(rune('0'+h.Beat%10)) + `,"done":3,"total":10}`)
	if err := os.WriteFile(filepath.Join(dir, "locks", "k"), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestALockOnThisNodeIsFreeAtOnceWhenItsHolderIsGone(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir, "here", 0), open(t, dir, "here", 0)
	l, err := a.Lock(t.Context(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	awaitRecord(t, dir, func(h Holder) bool { return h.Boot == "here" })
	if other, _, err := b.try("k", &watch{}); other != nil || err != nil {
		t.Fatalf("two hold it: %v", err)
	}
	close(l.stop) // as a kill leaves it: the record stays, the kernel's lock goes
	l.beating.Wait()
	l.f.Close()
	other, _, err := b.try("k", &watch{})
	if other == nil || err != nil {
		t.Fatalf("it is not free: %v", err)
	}
	other.Unlock()
}

func TestWhoWaitsStopsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir, "here", 0), open(t, dir, "here", 0)
	l, err := a.Lock(t.Context(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := b.Lock(ctx, "k", func(Holder) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestReferencesOutliveTheirProcessForALease(t *testing.T) {
	dir := t.TempDir()
	killed, next := open(t, dir, "here", 3*mib), open(t, dir, "here", 3*mib)
	killed.add("a", mib)
	close(killed.owner.stop) // as a kill leaves it
	<-killed.owner.done
	killed.owner.closed = true
	killed.owner.f.Close()
	var full *NoSpaceError
	if err := next.Room(5 * mib / 2); !errors.As(err, &full) || !strings.Contains(full.Says, "used by 1 processes") {
		t.Fatalf("got %v", err)
	}
	next.clock.SetTime(killed.clock.Now().Add(lease + time.Second))
	if err := next.Room(5 * mib / 2); err != nil || next.has("a") {
		t.Errorf("after the lease: %v, still there %v", err, next.has("a"))
	}
}

func TestCloseLetsGoAtOnce(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir, "here", 3*mib), open(t, dir, "here", 3*mib)
	a.add("a", mib)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Room(5 * mib / 2); err != nil || b.has("a") {
		t.Errorf("got %v, still there %v", err, b.has("a"))
	}
}

func TestRoomTakesTheLongestUnusedFirstAndNoMoreThanNeeded(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, "here", 0)
	for _, name := range []string{"a", "b", "c", "d"} {
		w.add(name, mib)
	}
	w.clock.Step(time.Second)
	if err := w.Use(sum("a")); err != nil { // used again: now the youngest
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	n := open(t, dir, "here", 5*mib)
	n.clock.SetTime(w.clock.Now())
	if err := n.Room(2 * mib); err != nil {
		t.Fatal(err)
	}
	if got := []bool{n.has("a"), n.has("b"), n.has("c"), n.has("d")}; got[0] != true || got[1] || !got[2] || !got[3] {
		t.Errorf("a, b, c, d are there: %v; want all but b", got)
	}
}

func TestAFileOnItsWayGoesOnlyWhenNobodyFetchesIt(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir, "here", 3*mib), open(t, dir, "here", 3*mib)
	l, err := a.Lock(t.Context(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Partial("k", 2*mib, "v")
	if err != nil {
		t.Fatal(err)
	}
	var full *NoSpaceError
	if err := b.Room(2 * mib); !errors.As(err, &full) {
		t.Errorf("while it is fetched: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	l.Unlock()
	if err := b.Room(2*mib, "k"); !errors.As(err, &full) {
		t.Errorf("the file that the room is for: %v", err)
	}
	if err := b.Room(2 * mib); err != nil || b.There("k") != 0 {
		t.Errorf("got %v, %d bytes are left", err, b.There("k"))
	}
}

func TestWhatIsOldIsSweptAway(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir, "here", 0)
	for _, name := range []string{"old", "young"} {
		p, err := n.Partial(name, 10, "v")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Close(), n.Learn(name, Fact{SHA256: name})); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-100 * 24 * time.Hour)
	for _, path := range []string{"partial/old", "partial/old.json", "known/old", "partial/tmp-x"} {
		at := filepath.Join(dir, path)
		if err := os.WriteFile(at, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(at, long, long); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir, "here", 0)
	for _, c := range []struct{ folder, want string }{{"partial", "young"}, {"known", "young"}} {
		entries, err := os.ReadDir(filepath.Join(dir, c.folder))
		if err != nil || len(entries) != 1 || entries[0].Name() != c.want {
			t.Errorf("%s holds %v, %v", c.folder, entries, err)
		}
	}
}

func TestABlobOfAnotherSizeIsNone(t *testing.T) {
	n := open(t, t.TempDir(), "here", 0)
	path := n.add("a", 100)
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 50); err != nil {
		t.Fatal(err)
	}
	if _, ok := n.Blob(sum("a"), 100); ok || n.has("a") {
		t.Error("it is still there")
	}
}

func TestAModelIsAFolderOfLinksThatMayBeMountedAnywhere(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir, "here", 0)
	n.add("a", 10)
	n.add("b", 10)
	files := []Link{{Name: "m.gguf", SHA256: sum("a")}, {Name: "x/y/c.json", SHA256: sum("b")}}
	first, err := n.Model(files)
	if err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(filepath.Join(moved, "models", filepath.Base(first), f.Name)); err != nil || len(b) != 10 {
			t.Errorf("%s: %d bytes, %v", f.Name, len(b), err)
		}
	}
	if err := os.Rename(moved, dir); err != nil {
		t.Fatal(err)
	}
	if again, err := n.Model([]Link{files[1], files[0]}); err != nil || again != first {
		t.Errorf("got %s, then %s, %v", first, again, err)
	}
}

func TestHoldKeepsWhatALinkLeadsTo(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, "here", 3*mib)
	first.add("a", mib)
	model, err := first.Model([]Link{{Name: "m.gguf", SHA256: sum("a")}})
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "model")
	for _, target := range []string{model, filepath.Join(model, "m.gguf")} {
		if err := first.Point(link, target); err != nil {
			t.Fatal(err)
		}
		next := open(t, dir, "here", 3*mib)
		if err := next.Hold(link); err != nil || len(next.owner.blobs) != 1 || next.owner.blobs[0] != sum("a") {
			t.Errorf("%s: it holds %v, %v", target, next.owner.blobs, err)
		}
	}
	if err := first.Hold(t.TempDir()); err != nil {
		t.Errorf("a path outside: %v", err)
	}
	var broken *UnwritableError
	if err := first.Point(t.TempDir(), model); !errors.As(err, &broken) {
		t.Errorf("a link in place of a folder: %v", err)
	}
}

// A file on its way remembers, over any number of processes, exactly the pieces that were written whole.
func TestAFileOnItsWayRemembersItsPieces(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		size := rapid.Int64Range(1, 100*kib).Draw(r, "size")
		c := open(t, filepath.Join(dir, rapid.StringMatching(`[a-z]{12}`).Draw(r, "dir")), "here", 0)
		defer c.Close()
		want := make([]byte, size)
		there := map[int64]bool{}
		version := "v1"
		p, err := c.Partial("k", size, version)
		if err != nil {
			r.Fatal(err)
		}
		r.Repeat(map[string]func(*rapid.T){
			"write": func(r *rapid.T) {
				first := rapid.Int64Range(0, p.pieces()-1).Draw(r, "piece") * p.c.o.PieceBytes
				n := rapid.Int64Range(1, size-first).Draw(r, "bytes")
				b := bytes.Repeat([]byte{rapid.Byte().Draw(r, "byte")}, int(n))
				if _, err := p.WriteAt(b, first); err != nil {
					r.Fatal(err)
				}
				copy(want[first:], b)
				if err := p.Wrote(Span{first, first + n}); err != nil {
					r.Fatal(err)
				}
				for at := first; at < size && min(at+p.c.o.PieceBytes, size) <= first+n; at += p.c.o.PieceBytes {
					there[at] = true
				}
			},
			"reopen": func(r *rapid.T) {
				other := rapid.SampledFrom([]string{"v1", "v1", "v1", "v2", ""}).Draw(r, "version")
				if err := p.Close(); err != nil {
					r.Fatal(err)
				}
				if other != version || other == "" {
					version, there, want = other, map[int64]bool{}, make([]byte, size)
				}
				if p, err = c.Partial("k", size, other); err != nil {
					r.Fatal(err)
				}
			},
			"": func(r *rapid.T) {
				var bytesThere, frontier, missing int64
				for at := int64(0); at < size; at += p.c.o.PieceBytes {
					if there[at] {
						bytesThere += min(p.c.o.PieceBytes, size-at)
					}
				}
				for there[frontier] {
					frontier = min(frontier+p.c.o.PieceBytes, size)
				}
				for _, s := range p.Missing(3) {
					missing += s.Bytes()
					if s.Bytes() > 3*p.c.o.PieceBytes || there[s.From] {
						r.Fatalf("%+v is missing", s)
					}
				}
				if at, _ := p.Frontier(); p.There() != bytesThere || missing != size-bytesThere || at != frontier {
					r.Fatalf("%d there, %d missing, %d from the start; want %d, %d, %d", p.There(), missing, at, bytesThere, size-bytesThere, frontier)
				}
				got := make([]byte, frontier)
				if _, err := p.ReadAt(got, 0); err != nil || !bytes.Equal(got, want[:frontier]) {
					r.Fatalf("the content is another: %v", err)
				}
			},
		})
		if err := p.Close(); err != nil {
			r.Fatal(err)
		}
	})
}

func TestSizesAreForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536 * kib: "1.5 MiB", 140 << 30: "140.0 GiB", 3 << 40: "3.0 TiB"} {
		if got := Size(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
