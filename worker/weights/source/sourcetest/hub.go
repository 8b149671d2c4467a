package sourcetest

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// Commit is the revision that every branch of the hub leads to.
const Commit = "0123456789abcdef0123456789abcdef01234567"

// Token is the one that a hub with Private wants.
const Token = "hf_secretsecretsecret"

// Hub is a double of a model hub with one model, org/m, and of the store that it sends downloads on to. Set the fields
// before the first request.
type Hub struct {
	// Files of the model. Those of weights are stored as large files, with their SHA-256 in the manifest.
	Files map[string][]byte
	// Private wants Token for everything on the hub; Gated is what it says otherwise.
	Private, Gated bool
	// Bare leaves sizes and digests out of the manifest, as some mirrors do.
	Bare bool
	// Lie is what the manifest says of a file's SHA-256 instead of the truth.
	Lie map[string]string
	// Fault may answer a request of the store in its place: it returns true if it did. n counts the store's requests from 1.
	Fault func(n int, w http.ResponseWriter, r *http.Request) bool
	// Body may change what the store sends for a request.
	Body func(n int, b []byte) []byte
	// ETag of a file as the store has it; nil: its digest.
	ETag func(n int, name string) string
	// HubFault may answer a request of the hub in its place.
	HubFault func(n int, w http.ResponseWriter, r *http.Request) bool

	// Hub and Store serve. They are different hosts.
	Hub, Store *httptest.Server

	mu     sync.Mutex // guards the rest
	hub    int
	store  int
	bytes  int64
	leaked []string
	ranges []string
}

// Start serves until Close, by TLS.
func (h *Hub) Start() *Hub { return h.start(httptest.NewTLSServer) }

// StartPlain serves until Close, by plain HTTP: clients in other processes need no certificate.
func (h *Hub) StartPlain() *Hub { return h.start(httptest.NewServer) }

func (h *Hub) start(server func(http.Handler) *httptest.Server) *Hub {
	h.Store = server(http.HandlerFunc(h.serveStore))
	h.Hub = server(http.HandlerFunc(h.serveHub))
	return h
}

// Close ends both servers.
func (h *Hub) Close() {
	h.Hub.CloseClientConnections()
	h.Store.CloseClientConnections()
	h.Hub.Close()
	h.Store.Close()
}

// Sent is how many bytes of files the store has sent.
func (h *Hub) Sent() int64 { h.mu.Lock(); defer h.mu.Unlock(); return h.bytes }

// StoreRequests is how many requests the store had, and HubRequests the hub.
func (h *Hub) StoreRequests() int { h.mu.Lock(); defer h.mu.Unlock(); return h.store }

// HubRequests is how many requests the hub had.
func (h *Hub) HubRequests() int { h.mu.Lock(); defer h.mu.Unlock(); return h.hub }

// Leaked are the credentials that came to the store, which should have none.
func (h *Hub) Leaked() []string { h.mu.Lock(); defer h.mu.Unlock(); return h.leaked }

// Ranges are the Range headers that came to the store.
func (h *Hub) Ranges() []string { h.mu.Lock(); defer h.mu.Unlock(); return h.ranges }

func (h *Hub) serveHub(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.hub++
	n := h.hub
	h.mu.Unlock()
	if h.HubFault != nil && h.HubFault(n, w, r) {
		return
	}
	if h.Private && r.Header.Get("Authorization") != "Bearer "+Token {
		if h.Gated {
			w.Header().Set("X-Error-Code", "GatedRepo")
		}
		http.Error(w, "Access to model org/m is restricted", http.StatusUnauthorized)
		return
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/api/models/org/m/revision/"); ok {
		if rest == "gone" {
			w.Header().Set("X-Error-Code", "RevisionNotFound")
			http.Error(w, "Invalid rev id", http.StatusNotFound)
			return
		}
		h.manifest(w)
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/org/m/resolve/"+Commit+"/")
	b, there := h.Files[name]
	if !ok || !there {
		w.Header().Set("X-Error-Code", "RepoNotFound")
		http.Error(w, "Repository not found", http.StatusUnauthorized)
		return
	}
	w.Header().Set("X-Repo-Commit", Commit)
	w.Header().Set("X-Linked-Size", fmt.Sprint(len(b)))
	if isLarge(name) {
		w.Header().Set("X-Linked-Etag", `"`+h.sum(name)+`"`)
	} else {
		w.Header().Set("ETag", `"`+gitOID(b)+`"`)
	}
	http.Redirect(w, r, h.Store.URL+"/blob/"+name+"?X-Amz-Signature=s1gn4ture", http.StatusFound)
}

func (h *Hub) manifest(w http.ResponseWriter) {
	type large struct {
		SHA256 string `json:"sha256"`
		Size   int    `json:"size"`
	}
	type sibling struct {
		Name string `json:"rfilename"`
		Size *int   `json:"size,omitempty"`
		Blob string `json:"blobId,omitempty"`
		LFS  *large `json:"lfs,omitempty"`
	}
	var out []sibling
	for name, b := range h.Files {
		s := sibling{Name: name}
		if size := len(b); !h.Bare {
			s.Size, s.Blob = &size, gitOID(b)
			if isLarge(name) {
				s.LFS = &large{h.sum(name), size}
			}
		}
		out = append(out, s)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"sha": Commit, "siblings": out})
}

func (h *Hub) sum(name string) string {
	if lie, ok := h.Lie[name]; ok {
		return lie
	}
	return Sum(h.Files[name])
}

func (h *Hub) serveStore(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/blob/")
	h.mu.Lock()
	h.store++
	n := h.store
	h.ranges = append(h.ranges, r.Header.Get("Range"))
	for _, header := range []string{"Authorization", "Cookie", "Referer"} {
		if v := r.Header.Get(header); v != "" {
			h.leaked = append(h.leaked, header+": "+v)
		}
	}
	h.mu.Unlock()
	if r.URL.Query().Get("X-Amz-Signature") == "" {
		http.Error(w, "unsigned", http.StatusForbidden)
		return
	}
	if h.Fault != nil && h.Fault(n, w, r) {
		return
	}
	b := h.Files[name]
	etag := `"` + Sum(b) + `"`
	if h.ETag != nil {
		etag = h.ETag(n, name)
	}
	if h.Body != nil {
		b = h.Body(n, b)
	}
	w.Header().Set("ETag", etag)
	http.ServeContent(&meter{ResponseWriter: w, hub: h}, r, name, time.Time{}, bytes.NewReader(b))
}

// meter counts what is sent.
type meter struct {
	http.ResponseWriter
	hub *Hub
}

func (m *meter) Write(b []byte) (int, error) {
	n, err := m.ResponseWriter.Write(b)
	m.hub.mu.Lock()
	m.hub.bytes += int64(n)
	m.hub.mu.Unlock()
	return n, err
}

// Cut answers a range request with the first n bytes of it and breaks the connection.
func (h *Hub) Cut(w http.ResponseWriter, r *http.Request, n int) {
	b := h.Files[strings.TrimPrefix(r.URL.Path, "/blob/")]
	from, to := 0, len(b)-1
	_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(b)))
	w.Header().Set("Content-Length", fmt.Sprint(to-from+1))
	w.Header().Set("ETag", `"`+Sum(b)+`"`)
	w.WriteHeader(http.StatusPartialContent)
	part := b[from : to+1]
	if n < len(part) {
		part = part[:n]
	}
	_, _ = (&meter{ResponseWriter: w, hub: h}).Write(part)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler) //nolint:forbidigo // how a handler breaks its connection
}

func isLarge(name string) bool {
	return strings.HasSuffix(name, ".gguf") || strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".bin")
}

func gitOID(b []byte) string {
	s := sha1.New()
	_, _ = io.WriteString(s, fmt.Sprintf("blob %d\x00", len(b)))
	_, _ = s.Write(b)
	return hex.EncodeToString(s.Sum(nil))
}
