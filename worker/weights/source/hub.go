package source

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// hub is a model hub that speaks the Hugging Face protocol. Every URL that it is asked for after List names a commit, so
// a branch that moves on meanwhile changes nothing.
type hub struct {
	web
	plain    *http.Client // follows no redirect: the hub's own headers are on the first answer
	endpoint *url.URL
	token    string
	uri      URI

	mu     sync.Mutex        // guards the rest
	commit string            // of List
	etags  map[string]string // by file, as the first part had it
}

var commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// manifest is what the hub says about a revision of a model.
type manifest struct {
	SHA      string `json:"sha"`
	Siblings []struct {
		Name string `json:"rfilename"`
		Size *int64 `json:"size"`
		Blob string `json:"blobId"`
		LFS  *struct {
			SHA256 string `json:"sha256"`
			OID    string `json:"oid"`
			Size   int64  `json:"size"`
		} `json:"lfs"`
	} `json:"siblings"`
}

// List reads the manifest of the revision: one request, with sizes and digests.
func (h *hub) List(ctx context.Context) (Listing, error) {
	r, err := h.request(ctx, http.MethodGet, "api/models/"+h.uri.Name+"/revision/"+url.PathEscape(h.uri.Revision)+"?blobs=true")
	if err != nil {
		return Listing{}, err
	}
	resp, err := h.do(r)
	if err != nil {
		return Listing{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return Listing{}, h.explain(resp)
	}
	defer resp.Body.Close()
	var m manifest
	if err := decode(ctx, resp.Body, &m, h.uri.String()); err != nil {
		return Listing{}, err
	}
	if !commitHash.MatchString(m.SHA) || len(m.Siblings) > maxFiles {
		return Listing{}, refuse(Unusable, "%s: the hub's manifest has commit %q and %d files, expected 40 hexadecimal digits and at most %d",
			h.uri, short(m.SHA), len(m.Siblings), maxFiles)
	}
	h.mu.Lock()
	h.commit, h.etags = m.SHA, map[string]string{}
	h.mu.Unlock()
	l := Listing{Revision: m.SHA}
	for _, s := range m.Siblings {
		name, ok := clean(s.Name)
		if !ok {
			continue // nothing that could be stored
		}
		f := h.file(name, m.SHA)
		if s.Size != nil {
			f.Bytes = *s.Size
		}
		if s.LFS != nil {
			f.SHA256, f.Bytes = digestOf(s.LFS.SHA256+s.LFS.OID), s.LFS.Size
		} else if commitHash.MatchString(s.Blob) {
			f.GitOID = s.Blob
		}
		l.Files = append(l.Files, f)
	}
	return l, nil
}

func (h *hub) file(name, commit string) File {
	return File{Name: name, Bytes: -1, Version: commit, at: name,
		Identity: "hf:" + h.endpoint.Host + h.endpoint.Path + "/" + h.uri.Name + "/" + name}
}

// Stat asks for what the manifest left out: some mirrors have no sizes in theirs.
func (h *hub) Stat(ctx context.Context, f File) (File, error) {
	if f.Bytes >= 0 && (f.SHA256 != "" || f.GitOID != "") {
		return f, nil
	}
	r, err := h.request(ctx, http.MethodHead, h.resolve(f))
	if err != nil {
		return File{}, err
	}
	first := h.web
	first.send = h.plain.Do
	resp, err := first.do(r) //nolint:bodyclose // drain does
	if err != nil {
		return File{}, err
	}
	defer drain(resp.Body)
	if resp.StatusCode >= 400 {
		return File{}, h.explain(resp)
	}
	if size, err := strconv.ParseInt(resp.Header.Get("X-Linked-Size"), 10, 64); err == nil {
		f.Bytes = size
	} else if resp.StatusCode == http.StatusOK {
		f.Bytes = resp.ContentLength
	}
	if f.Bytes < 0 {
		return File{}, refuse(Unusable, "%s: the hub doesn't say how large %s is", h.uri, f.Name)
	}
	if linked := unquote(resp.Header.Get("X-Linked-Etag")); linked != "" {
		f.SHA256 = digestOf(linked)
	} else if e := unquote(resp.Header.Get("ETag")); commitHash.MatchString(e) {
		f.GitOID = e
	}
	return f, nil
}

// Open asks the hub for a part, which sends it on to a store of its own.
func (h *hub) Open(ctx context.Context, f File, from, to int64) (io.ReadCloser, error) {
	r, err := h.request(ctx, http.MethodGet, h.resolve(f))
	if err != nil {
		return nil, err
	}
	resp, err := h.part(r, f, from, to)
	if err != nil {
		return nil, err
	}
	if err := h.same(f, resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp.Body, nil
}

// same says whether resp is of the file that the manifest described and that the other parts were of.
func (h *hub) same(f File, resp *http.Response) error {
	for r := resp; r != nil; r = r.Request.Response {
		if linked := digestOf(unquote(r.Header.Get("X-Linked-Etag"))); linked != "" && f.SHA256 != "" && linked != f.SHA256 {
			return refuse(Changed, "%s: the hub's %s has digest %s, its manifest said %s", h.uri, f.Name, linked, f.SHA256)
		}
	}
	etag := resp.Header.Get("ETag")
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, ok := h.etags[f.Name]; ok && known != etag {
		delete(h.etags, f.Name)
		return refuse(Changed, "%s: %s changed while it was fetched: its ETag was %s and is %s", h.uri, f.Name, short(known), short(etag))
	}
	h.etags[f.Name] = etag
	return nil
}

func (h *hub) resolve(f File) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.uri.Name + "/resolve/" + h.commit + "/" + escape(f.at)
}

// escape escapes each part of a path.
func escape(p string) string {
	parts := strings.Split(p, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

func (h *hub) request(ctx context.Context, method, path string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(h.endpoint.String(), "/")+"/"+path, nil)
	if err != nil {
		return nil, refuse(Unusable, "%s: no URL can be made of it", h.uri)
	}
	if h.token != "" {
		r.Header.Set("Authorization", "Bearer "+h.token)
	}
	return r, nil
}

// explain says what an answer of the hub means: it answers 401 for what it won't say is there.
func (h *hub) explain(resp *http.Response) *Error {
	code := resp.Header.Get("X-Error-Code")
	e := h.status(resp)
	hint := "HF_TOKEN is not set"
	if h.token != "" {
		hint = "HF_TOKEN has no access"
	}
	switch {
	case code == "GatedRepo":
		e.Kind = Unauthorized
		e.Says = h.uri.String() + " is gated: accept its terms on the hub, with the account that HF_TOKEN is of; " + hint
	case code == "RepoNotFound", code == "" && e.Kind == Unauthorized:
		e.Kind = Unauthorized
		e.Says = h.uri.String() + " doesn't exist or is private: the hub answers " + strconv.Itoa(resp.StatusCode) + ", and " + hint
	case code == "RevisionNotFound":
		e.Kind = NotFound
		e.Says = h.uri.String() + " has no such revision"
	}
	return e
}

// decode reads JSON of bounded size.
func decode(ctx context.Context, body io.Reader, into any, what string) error {
	b, err := io.ReadAll(io.LimitReader(body, maxResponse+1))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return refuse(Unreachable, "%s: the list of files broke off: %s", what, innermost(err))
	case len(b) > maxResponse:
		return refuse(Unusable, "%s: the list of files has more than %d bytes", what, maxResponse)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return refuse(Unusable, "%s: the list of files is no JSON that fits: %s", what, short(err.Error()))
	}
	return nil
}

var hexDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// digestOf returns s where it is a SHA-256 in hexadecimal.
func digestOf(s string) string {
	s = strings.TrimPrefix(s, "sha256:")
	if hexDigest.MatchString(s) {
		return s
	}
	return ""
}

func unquote(etag string) string { return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`) }
