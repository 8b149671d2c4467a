package source

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

// registry is a repository of an OCI registry. A layer that is a file as it stands (an artifact) is listed as that file;
// a layer of an image is listed as an archive of files.
type registry struct {
	web
	repo *remote.Repository
	uri  URI
}

// Annotations and media types that say what a layer is.
const (
	titleKey     = ocispec.AnnotationTitle
	modelPathKey = "org.cncf.model.filepath"
	unpackKey    = "io.deis.oras.content.unpack"
	maxLayers    = 512
)

// List resolves the reference and reads its manifest; of an index that for this platform.
func (g *registry) List(ctx context.Context) (Listing, error) {
	reference := g.uri.Digest
	if reference == "" {
		reference = g.uri.Revision
	}
	desc, err := g.repo.Resolve(ctx, reference)
	if err != nil {
		return Listing{}, g.explain(ctx, err)
	}
	revision := desc.Digest.String()
	for depth := 0; isIndex(desc.MediaType); depth++ {
		if depth == 2 {
			return Listing{}, refuse(Unusable, "%s: its index leads to an index that leads to an index", g.uri)
		}
		var index ocispec.Index
		if err := g.fetch(ctx, desc, &index); err != nil {
			return Listing{}, err
		}
		if desc, err = choose(index.Manifests); err != nil {
			return Listing{}, refuse(NotFound, "%s: %s", g.uri, err)
		}
	}
	var m ocispec.Manifest
	if err := g.fetch(ctx, desc, &m); err != nil {
		return Listing{}, err
	}
	if len(m.Layers) > maxLayers {
		return Listing{}, refuse(Unusable, "%s has %d layers, expected at most %d", g.uri, len(m.Layers), maxLayers)
	}
	l := Listing{Revision: revision}
	for _, layer := range m.Layers {
		if f, ok := layerFile(layer); ok {
			l.Files = append(l.Files, f)
		}
	}
	if len(l.Files) == 0 {
		return Listing{}, refuse(NotFound, "%s has no layer that holds files", g.uri)
	}
	return l, nil
}

func isIndex(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageIndex || mediaType == "application/vnd.docker.distribution.manifest.list.v2+json"
}

// choose returns the manifest for this platform, or the first that is for none in particular.
func choose(of []ocispec.Descriptor) (ocispec.Descriptor, error) {
	var any *ocispec.Descriptor
	for i, d := range of {
		switch {
		case d.Platform != nil && d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH:
			return d, nil
		case any == nil && (d.Platform == nil || d.Platform.Architecture == "" || len(of) == 1):
			any = &of[i]
		}
	}
	if any == nil {
		return ocispec.Descriptor{}, errors.New("its index has no manifest for linux/" + runtime.GOARCH)
	}
	return *any, nil
}

// layerFile says what a layer is; ok is false for what holds no files of a model.
func layerFile(d ocispec.Descriptor) (f File, ok bool) {
	f = File{Bytes: d.Size, SHA256: digestOf(d.Digest.String()), at: d.Digest.String(), Identity: "oci:" + d.Digest.String(),
		Version: d.Digest.String()}
	if f.SHA256 == "" || f.Bytes < 0 {
		return f, false
	}
	name := d.Annotations[modelPathKey]
	if name == "" {
		name = d.Annotations[titleKey]
	}
	f.Name, ok = clean(name)
	archive := archiveOf(d.MediaType)
	switch {
	case ok && d.Annotations[unpackKey] == "true":
		f.Archive = TarGzip
	case ok && archive != "" && strings.Contains(d.MediaType, "vnd.cncf.model"):
		f.Archive = archive
	case ok:
		// Tools that push files give them the media type of a layer; the title says that it is a file.
	case archive != "":
		f.Name, f.Archive = strings.ReplaceAll(f.at, ":", "-"), archive
	case strings.Contains(d.MediaType, "gguf"):
		f.Name = "model.gguf"
	default:
		return f, false
	}
	return f, true
}

func archiveOf(mediaType string) Archive {
	switch {
	case strings.HasSuffix(mediaType, "tar+gzip"), strings.HasSuffix(mediaType, "tar.gzip"):
		return TarGzip
	case strings.HasSuffix(mediaType, "tar+zstd"), strings.HasSuffix(mediaType, "tar.zstd"):
		return TarZstd
	case strings.HasSuffix(mediaType, ".tar"):
		return Tar
	}
	return ""
}

// Stat has nothing to add to List.
func (g *registry) Stat(_ context.Context, f File) (File, error) { return f, nil }

// Open asks for a part of a blob. The library's own blob reader asks for all of it first, so the request is made here; its
// client adds the token.
func (g *registry) Open(ctx context.Context, f File, from, to int64) (io.ReadCloser, error) {
	scheme := "https://"
	if g.repo.PlainHTTP {
		scheme = "http://"
	}
	ctx = auth.AppendRepositoryScope(ctx, g.repo.Reference, auth.ActionPull)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		scheme+g.repo.Reference.Host()+"/v2/"+g.repo.Reference.Repository+"/blobs/"+f.at, nil)
	if err != nil {
		return nil, refuse(Unusable, "%s: no URL can be made of it", g.uri)
	}
	resp, err := g.part(r, f, from, to)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// fetch reads a manifest of bounded size and checks its digest.
func (g *registry) fetch(ctx context.Context, d ocispec.Descriptor, into any) error {
	if d.Size > 4<<20 {
		return refuse(Unusable, "%s: its manifest has %d bytes, expected at most %d", g.uri, d.Size, 4<<20)
	}
	b, err := content.FetchAll(ctx, g.repo, d)
	if err != nil {
		return g.explain(ctx, err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return refuse(Unusable, "%s: its manifest is no JSON that fits: %s", g.uri, short(err.Error()))
	}
	return nil
}

// explain makes an *Error of what the library returns, whose messages may hold the URL of a redirect.
func (g *registry) explain(ctx context.Context, err error) error {
	var e *errcode.ErrorResponse
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errdef.ErrNotFound):
		return refuse(NotFound, "%s is not in the registry", g.uri)
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrInvalidDescriptorSize):
		return refuse(Changed, "%s: its manifest is not the one that its digest names", g.uri)
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return refuse(Unauthorized, "%s: the registry wants credentials, and there are none for it", g.uri)
	case !errors.As(err, &e):
		return failure(ctx, g.endpoint(), err)
	}
	k := Unusable
	switch {
	case e.StatusCode == http.StatusUnauthorized, e.StatusCode == http.StatusForbidden:
		k = Unauthorized
	case e.StatusCode == http.StatusNotFound:
		k = NotFound
	case e.StatusCode == http.StatusTooManyRequests:
		k = Limited
	case e.StatusCode >= 500:
		k = Unreachable
	}
	return refuse(k, "%s: the registry answers %d %s", g.uri, e.StatusCode, http.StatusText(e.StatusCode))
}
