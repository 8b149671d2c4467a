package fetch

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/worker/weights"
	"github.com/ringfleet/ringfleet/worker/weights/source/sourcetest"
)

const mib = 1 << 20

func oneFile() (*sourcetest.Hub, []byte) {
	b := sourcetest.GGUF(2*mib, 1)
	return &sourcetest.Hub{Files: map[string][]byte{"m.gguf": b, "README.md": []byte("# m"), "pytorch_model.bin": []byte("pickle")}}, b
}

func TestAFileOfAPrivateHubIsFetchedOnceByRangesWithoutLeakingTheToken(t *testing.T) {
	hub, b := oneFile()
	hub.Private = true
	r := newRig(t, hub)
	path := r.ensure(Request{URI: "hf://org/m"})
	if filepath.Base(path) != "m.gguf" || !bytes.Equal(content(t, path), b) {
		t.Errorf("%s is another file", path)
	}
	if got := hub.Sent(); got != int64(len(b)) {
		t.Errorf("the store sent %d bytes, the file has %d", got, len(b))
	}
	if len(hub.Ranges()) != 9 || !strings.HasPrefix(hub.Ranges()[0], "bytes=") { // 256 KiB each
		t.Errorf("the ranges were %q", hub.Ranges())
	}
	if len(hub.Leaked()) != 0 {
		t.Errorf("the store got %q", hub.Leaked())
	}
	if left := r.left("partial"); len(left) != 0 {
		t.Errorf("%q is left", left)
	}
}

func TestWhatIsInTheCacheIsNotFetchedAgain(t *testing.T) {
	hub, b := oneFile()
	r := newRig(t, hub)
	first := r.ensure(Request{URI: "hf://org/m"})
	hubRequests := hub.HubRequests()
	if second := r.again().ensure(Request{URI: "hf://org/m"}); second != first {
		t.Errorf("got %s, then %s", first, second)
	}
	if hub.Sent() != int64(len(b)) {
		t.Errorf("the store sent %d bytes for a file of %d", hub.Sent(), len(b))
	}
	if hub.HubRequests() != hubRequests+1 {
		t.Errorf("the hub was asked %d times more, expected once: where does the branch lead to", hub.HubRequests()-hubRequests)
	}
}

func TestACommitIsNotAskedForTwice(t *testing.T) {
	hub, _ := oneFile()
	r := newRig(t, hub)
	first := r.ensure(Request{URI: "hf://org/m@" + sourcetest.Commit})
	before := hub.HubRequests()
	if second := r.again().ensure(Request{URI: "hf://org/m@" + sourcetest.Commit}); second != first || hub.HubRequests() != before {
		t.Errorf("got %s, then %s with %d requests", first, second, hub.HubRequests()-before)
	}
}

func TestTwoModelsShareAFile(t *testing.T) {
	hub, b := oneFile()
	hub.Files["copy.gguf"] = b
	r := newRig(t, hub)
	one := r.ensure(Request{URI: "hf://org/m", File: "m.gguf"})
	two := r.ensure(Request{URI: "hf://org/m", File: "copy.gguf"})
	a, _ := filepath.EvalSymlinks(one)
	c, _ := filepath.EvalSymlinks(two)
	if one == two || a != c || hub.Sent() != int64(len(b)) {
		t.Errorf("%s is %s and %s is %s; %d bytes were sent", one, a, two, c, hub.Sent())
	}
}

func TestASafetensorsModelIsAFolderWithoutCode(t *testing.T) {
	shard := func(n uint64) []byte { return sourcetest.Safetensors(300_000, n) }
	hub := &sourcetest.Hub{Files: map[string][]byte{
		"model-00001-of-00002.safetensors": shard(1), "model-00002-of-00002.safetensors": shard(2), "consolidated.safetensors": shard(3),
		"model.safetensors.index.json": []byte(`{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`),
		"config.json":                  []byte(`{"architectures":["X"],"auto_map":{"AutoModel":"modeling_x.X"}}`),
		"tokenizer.json":               []byte(`{}`), "chat_template.jinja": []byte("{{x}}"), "1_Pooling/config.json": []byte("{}"),
		"modeling_x.py": []byte("import os"), "pytorch_model.bin": []byte("pickle"), "original/params.json": []byte("{}"),
	}}
	r := newRig(t, hub)
	dir := r.ensure(Request{URI: "hf://org/m"})
	var found []string
	_ = filepath.WalkDir(dir, func(p string, d os.DirEntry, _ error) error {
		if !d.IsDir() {
			rel, _ := filepath.Rel(dir, p)
			found = append(found, rel)
			if !bytes.Equal(content(t, p), hub.Files[rel]) {
				t.Errorf("%s is another file", rel)
			}
		}
		return nil
	})
	want := "1_Pooling/config.json chat_template.jinja config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors " +
		"model.safetensors.index.json tokenizer.json"
	if strings.Join(found, " ") != want {
		t.Errorf("got  %s\nwant %s", found, want)
	}
}

func TestAManifestWithoutSizesIsCompletedFileByFile(t *testing.T) {
	hub, b := oneFile()
	hub.Bare = true
	r := newRig(t, hub)
	if path := r.ensure(Request{URI: "hf://org/m"}); !bytes.Equal(content(t, path), b) {
		t.Error("another file")
	}
}

func TestTooManyRequestsIsWaitedOutByAll(t *testing.T) {
	hub, b := oneFile()
	hub.Fault = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		limited := n > 1 && n <= 7 // each of four connections meets it
		if limited {
			w.Header().Set("Retry-After", "40")
			http.Error(w, "slow down", http.StatusTooManyRequests)
		}
		return limited
	}
	r := newRig(t, hub)
	var notes sync.Map
	path, err := r.Ensure(r.ctx(), Request{URI: "hf://org/m"}, func(p Progress) { notes.Store(p.Note, true); noSecret(t, p.Note) })
	if err != nil || !bytes.Equal(content(t, path), b) {
		t.Fatal(err)
	}
	if longest := r.clock.longest(); longest < 40*time.Second || longest > 48*time.Second {
		t.Errorf("the longest wait was %s, the store asked for 40 s and a fifth may be added", longest)
	}
	if hub.Sent() != int64(len(b)) {
		t.Errorf("%d bytes were sent for a file of %d", hub.Sent(), len(b))
	}
}

func TestAServerThatAsksForAnHourIsGivenUp(t *testing.T) {
	hub, _ := oneFile()
	hub.HubFault = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "3600")
		http.Error(w, "slow down", http.StatusTooManyRequests)
		return true
	}
	r := newRig(t, hub)
	_, err := r.Ensure(r.ctx(), Request{URI: "hf://org/m"}, nil)
	refused(t, err, SourceUnreachable, "429", "1h0m0s")
	if hub.HubRequests() != 1 {
		t.Errorf("%d requests were made", hub.HubRequests())
	}
}

func TestBrokenBodiesAreGoneOnWith(t *testing.T) {
	hub, b := oneFile()
	hub.Fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n%3 != 0 {
			hub.Cut(w, r, 100_000)
		}
		return false
	}
	r := newRig(t, hub)
	if path := r.ensure(Request{URI: "hf://org/m"}); !bytes.Equal(content(t, path), b) {
		t.Error("another file")
	}
	if hub.Sent() != int64(len(b)) {
		t.Errorf("%d bytes were sent for a file of %d: a byte came twice", hub.Sent(), len(b))
	}
}

func TestASourceThatOnlyFailsIsGivenUpAndGoneOnWithLater(t *testing.T) {
	hub, b := oneFile()
	up := downFrom(hub, 5)
	r := newRig(t, hub)
	_, err := r.Ensure(r.ctx(), Request{URI: "hf://org/m"}, nil)
	refused(t, err, SourceUnreachable, "503", "try 6")
	sent := hub.Sent()
	if sent == 0 {
		t.Fatal("nothing came through before")
	}
	up()
	path := r.ensure(Request{URI: "hf://org/m"})
	if most := int64(len(b) + 4*64<<10); !bytes.Equal(content(t, path), b) || hub.Sent() > most { // a piece for each connection
		t.Errorf("%d bytes were sent for a file of %d, %d of them before", hub.Sent(), len(b), sent)
	}
}

func TestAFileThatChangesIsBegunAnewOnce(t *testing.T) {
	for name, c := range map[string]struct {
		etag func(n int) string
		fine bool
	}{
		"once":       {func(n int) string { return strconv.FormatBool(n > 5) }, true},
		"every time": {func(n int) string { return strconv.Itoa(n) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			hub, b := oneFile()
			hub.ETag = func(n int, _ string) string { return `"` + c.etag(n) + `"` }
			r := newRig(t, hub, func(o *Options) { o.Connections = 1 })
			path, err := r.Ensure(r.ctx(), Request{URI: "hf://org/m"}, nil)
			if c.fine && (err != nil || !bytes.Equal(content(t, path), b)) {
				t.Fatal(err)
			}
			if !c.fine {
				refused(t, err, SourceChanged, "m.gguf", "ETag")
			}
			if hub.Sent() > 2*int64(len(b)) {
				t.Errorf("%d bytes were sent for a file of %d", hub.Sent(), len(b))
			}
			if left := r.left("partial"); len(left) != 0 {
				t.Errorf("%q is left", left)
			}
		})
	}
}

func TestAStoreWithoutRangesSendsTheFileOnce(t *testing.T) {
	hub, b := oneFile()
	hub.Fault = func(_ int, _ http.ResponseWriter, r *http.Request) bool { r.Header.Del("Range"); return false }
	r := newRig(t, hub)
	if path := r.ensure(Request{URI: "hf://org/m"}); !bytes.Equal(content(t, path), b) {
		t.Error("another file")
	}
	if hub.Sent() > 2*int64(len(b)) {
		t.Errorf("%d bytes were sent for a file of %d", hub.Sent(), len(b))
	}
}

func TestAStalledRequestIsReplaced(t *testing.T) {
	hub, b := oneFile()
	blocked, release := make(chan struct{}), make(chan struct{})
	hub.Fault = func(n int, _ http.ResponseWriter, r *http.Request) bool {
		if n == 1 {
			close(blocked)
			select {
			case <-r.Context().Done():
			case <-release:
			}
			return true
		}
		return false
	}
	defer close(release)
	r := newRig(t, hub)
	go func() {
		<-blocked
		r.clock.bark()
	}()
	if path := r.ensure(Request{URI: "hf://org/m"}); !bytes.Equal(content(t, path), b) {
		t.Error("another file")
	}
}

func TestRefusals(t *testing.T) {
	sound := sourcetest.GGUF(mib, 1)
	one := func(name string, b []byte) map[string][]byte { return map[string][]byte{name: b} }
	config := func(s string) map[string][]byte {
		return map[string][]byte{"model.safetensors": sourcetest.Safetensors(4096, 1), "config.json": []byte(s)}
	}
	for name, c := range map[string]struct {
		hub    *sourcetest.Hub
		r      Request
		reason string
		says   []string
	}{
		"a digest that the file hasn't": {&sourcetest.Hub{Files: one("m.gguf", sound), Lie: map[string]string{"m.gguf": strings.Repeat("1", 64)}},
			Request{}, DigestMismatch, []string{"m.gguf", "expected sha256:1111", "found sha256:" + sourcetest.Sum(sound)}},
		"a digest that the manifest denies": {&sourcetest.Hub{Files: one("m.gguf", sound)}, Request{Digest: "sha256:" + strings.Repeat("2", 64)},
			DigestMismatch, []string{"the source says sha256:" + sourcetest.Sum(sound)}},
		"a digest that is none":         {&sourcetest.Hub{Files: one("m.gguf", sound)}, Request{Digest: "md5:1"}, DigestMismatch, []string{"64 hexadecimal"}},
		"a revision that is not there":  {&sourcetest.Hub{Files: one("m.gguf", sound)}, Request{URI: "hf://org/m@gone"}, NotFound, []string{"no such revision"}},
		"a model that is not there":     {&sourcetest.Hub{Files: one("m.gguf", sound)}, Request{URI: "hf://org/other"}, Unauthorized, []string{"hf://org/other"}},
		"a file that is not there":      {&sourcetest.Hub{Files: one("m.gguf", sound)}, Request{File: "n.gguf"}, NotFound, []string{"n.gguf", "it holds m.gguf"}},
		"several files":                 {&sourcetest.Hub{Files: map[string][]byte{"a.gguf": sound, "b.gguf": sound}}, Request{}, NotFound, []string{"2 *.gguf files"}},
		"both kinds":                    {&sourcetest.Hub{Files: map[string][]byte{"a.gguf": sound, "b.safetensors": sound}}, Request{}, NotFound, []string{"both"}},
		"pickles alone":                 {&sourcetest.Hub{Files: one("pytorch_model.bin", []byte("x"))}, Request{}, Unsupported, []string{"pytorch_model.bin"}},
		"a pickle by name":              {&sourcetest.Hub{Files: one("pytorch_model.bin", []byte("x"))}, Request{File: "pytorch_model.bin"}, Unsupported, []string{"neither"}},
		"patterns that allow nothing":   {&sourcetest.Hub{Files: one("m.gguf", sound)}, Request{Allow: []string{"*Q8*"}}, Unsupported, []string{"nothing"}},
		"another format by that ending": {&sourcetest.Hub{Files: one("m.gguf", []byte("PK\x03\x04not weights at all"))}, Request{}, weights.NotGGUF, []string{"m.gguf"}},
		"a file shorter than its head":  {&sourcetest.Hub{Files: one("m.gguf", sound[:mib/2])}, Request{}, Truncated, []string{"expected", "found 524288"}},
		"an empty file":                 {&sourcetest.Hub{Files: one("m.gguf", nil)}, Request{}, Truncated, []string{"empty"}},
		"lying safetensors": {&sourcetest.Hub{Files: one("m.safetensors", sourcetest.Safetensors(4096, 1)[:2000])}, Request{File: "m.safetensors"}, Truncated,
			[]string{"cut off"}},
		"code in another repository": {&sourcetest.Hub{Files: config(`{"auto_map":{"AutoModel":"evil/repo--m.X"}}`)}, Request{}, Unsupported, []string{"evil/repo--m.X"}},
		"an index of files that are not there": {&sourcetest.Hub{Files: map[string][]byte{"model-1.safetensors": sourcetest.Safetensors(4096, 1),
			"model.safetensors.index.json": []byte(`{"weight_map":{"x":"model-2.safetensors"}}`)}}, Request{}, NotFound, []string{"model-2.safetensors"}},
		"a digest for a folder":       {&sourcetest.Hub{Files: config("{}")}, Request{Digest: "sha256:" + strings.Repeat("2", 64)}, DigestMismatch, []string{"2 files"}},
		"a gated model":               {&sourcetest.Hub{Files: one("m.gguf", sound), Private: true, Gated: true}, Request{}, Unauthorized, []string{"gated", "accept its terms"}},
		"a scheme that nobody speaks": {&sourcetest.Hub{}, Request{URI: "gopher://x/y"}, Unsupported, []string{"gopher"}},
		"a URI with a password":       {&sourcetest.Hub{}, Request{URI: "https://u:passw0rd@host.example/m.gguf"}, Unsupported, []string{"credentials"}},
		"a pattern that is none":      {&sourcetest.Hub{Files: one("m.gguf", sound)}, Request{Allow: []string{"["}}, NotFound, []string{"malformed"}},
		"a URI that climbs":           {&sourcetest.Hub{}, Request{URI: "s3://bucket/../m.gguf"}, Unsupported, []string{"s3://BUCKET"}},
		"a size beyond all": {&sourcetest.Hub{HubFault: answer(200, `{"sha":"`+sourcetest.Commit+`","siblings":[{"rfilename":"m.gguf","size":1,
			"lfs":{"sha256":"`+strings.Repeat("1", 64)+`","size":4611686018427387904}}]}`)}, Request{}, Unsupported, []string{"4611686018427387904"}},
		"a manifest that is no JSON":   {&sourcetest.Hub{HubFault: answer(200, "<html>")}, Request{}, Unsupported, []string{"no JSON"}},
		"a hub that refuses a request": {&sourcetest.Hub{HubFault: answer(400, "?")}, Request{}, Unsupported, []string{"400"}},
	} {
		t.Run(name, func(t *testing.T) {
			hub := c.hub
			r := newRig(t, hub, func(o *Options) {
				if hub.Gated {
					env := o.Getenv
					o.Getenv = func(k string) string { return strings.ReplaceAll(env(k), sourcetest.Token, "hf_another") }
				}
			})
			if c.r.URI == "" {
				c.r.URI = "hf://org/m"
			}
			_, err := r.Ensure(r.ctx(), c.r, nil)
			refused(t, err, c.reason, c.says...)
			if _, err := os.Stat(r.dir); err == nil && len(r.left("partial")) != 0 {
				t.Errorf("%q is left", r.left("partial"))
			}
		})
	}
}

func answer(status int, body string) func(int, http.ResponseWriter, *http.Request) bool {
	return func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
		return true
	}
}

func TestAWrongFileIsNotFetchedAgainAtOnce(t *testing.T) {
	hub, b := oneFile()
	hub.Lie = map[string]string{"m.gguf": strings.Repeat("1", 64)}
	r := newRig(t, hub)
	for range 5 {
		_, err := r.Ensure(r.ctx(), Request{URI: "hf://org/m"}, nil)
		refused(t, err, DigestMismatch, "m.gguf")
	}
	if hub.Sent() != int64(len(b)) {
		t.Errorf("five tries fetched %d bytes of a file of %d", hub.Sent(), len(b))
	}
	r.clock.NewTimer(rejected)
	_, err := r.Ensure(r.ctx(), Request{URI: "hf://org/m"}, nil)
	refused(t, err, DigestMismatch, "m.gguf")
	if hub.Sent() != 2*int64(len(b)) {
		t.Errorf("a quarter of an hour later it is tried again: %d bytes", hub.Sent())
	}
}

func TestWhatWasFetchedServesWhileTheSourceIsAway(t *testing.T) {
	hub, b := oneFile()
	r := newRig(t, hub)
	first := r.ensure(Request{URI: "hf://org/m"})
	hub.HubFault = answer(503, "down")
	var last Progress
	second, err := r.again().Ensure(r.ctx(), Request{URI: "hf://org/m"}, func(p Progress) { last = p })
	if err != nil || second != first || !bytes.Equal(content(t, second), b) {
		t.Fatalf("got %q, %v", second, err)
	}
	if last.Stage != Ready || !strings.Contains(last.Note, "fetched before") {
		t.Errorf("the last report was %+v", last)
	}
	hub.HubFault = answer(401, "no more")
	_, err = r.again().Ensure(r.ctx(), Request{URI: "hf://org/m"}, nil)
	refused(t, err, Unauthorized, "hf://org/m")
}
