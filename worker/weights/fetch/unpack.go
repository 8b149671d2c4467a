package fetch

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/ringfleet/ringfleet/worker/weights/cache"
	"github.com/ringfleet/ringfleet/worker/weights/source"
)

// Bounds of an archive.
const (
	maxEntries = 100_000
	maxRatio   = 100 // of what comes out to what goes in
	maxOthers  = 100 // names that are remembered of files that nobody wanted
	zstdWindow = 128 << 20
)

// whiteout begins the name of an entry that removes one of an earlier layer; opaque removes a whole folder's.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// unpacked returns the files of an image: those of its layers, later ones over earlier ones. The wanted ones are in the
// cache then. A layer is fetched whole, checked, unpacked and dropped, so an image takes twice its room meanwhile.
func (j *job) unpacked(ctx context.Context, layers []source.File) ([]source.File, error) {
	if err := j.roomForLayers(layers); err != nil {
		return nil, err
	}
	var out []source.File
	for _, l := range layers {
		if l.Archive == "" {
			out = replaced(out, l)
			continue
		}
		links, ok := j.unpackedBefore(l)
		if !ok {
			var err error
			if links, err = j.unpackLayer(ctx, l); err != nil {
				return nil, err
			}
		}
		for _, m := range links {
			out = layered(out, m)
		}
	}
	return out, nil
}

func (j *job) roomForLayers(layers []source.File) error {
	var need, total int64
	var keys []string
	for _, l := range layers {
		if l.Archive == "" {
			continue
		}
		if l.Bytes > maxBytes {
			return j.tooLarge(l)
		}
		if _, ok := j.unpackedBefore(l); ok {
			continue
		}
		keys = append(keys, key(l))
		total += l.Bytes
		need += max(l.Bytes-j.cache.There(key(l)), 0) + l.Bytes
	}
	j.meter.begin(Fetching, total)
	return j.cache.Room(need, keys...)
}

// layerKey is what the wanted files of a layer are remembered by.
func (j *job) layerKey(l source.File) string {
	return cache.Key("layer", l.SHA256, string(l.Archive), j.request.File, strings.Join(j.request.Allow, ","))
}

// unpackedBefore returns the files of a layer where all that are wanted are in the cache.
func (j *job) unpackedBefore(l source.File) ([]cache.Link, bool) {
	fact, ok := j.cache.Known(j.layerKey(l))
	if !ok {
		return nil, false
	}
	var sums []string
	for _, m := range fact.Files {
		if m.SHA256 != "" {
			sums = append(sums, m.SHA256)
		}
	}
	if j.cache.Use(sums...) != nil {
		return nil, false
	}
	for _, m := range fact.Files {
		if m.SHA256 == "" {
			continue
		}
		if _, ok := j.cache.Blob(m.SHA256, m.Bytes); !ok {
			return nil, false
		}
	}
	return fact.Files, true
}

// unpackLayer fetches a layer and takes the wanted files out of it.
func (j *job) unpackLayer(ctx context.Context, l source.File) ([]cache.Link, error) {
	var links []cache.Link
	_, err := j.file(ctx, l, func(_ source.File, p *cache.Partial, _ string) (err error) {
		if links, err = j.unpack(ctx, l, p); err != nil {
			return err
		}
		if err := j.cache.Learn(j.layerKey(l), cache.Fact{Files: links, At: j.f.clock.Now()}); err != nil {
			return err
		}
		p.Discard()
		return nil
	})
	return links, err
}

// unpack reads an archive. Only regular files come out of it, under names that are compared with what is wanted and never
// become paths: in the cache a file's name is its digest.
func (j *job) unpack(ctx context.Context, l source.File, p *cache.Partial) ([]cache.Link, error) {
	j.meter.file(Unpacking, l.Name, 0)
	packed := &counted{r: io.NewSectionReader(p, 0, l.Bytes), count: func(n int64) { j.meter.add(n) }}
	plain, end, err := decompressed(packed, l.Archive)
	if err != nil {
		return nil, broken(j, l, err)
	}
	defer end()
	t := tar.NewReader(io.LimitReader(plain, maxRatio*l.Bytes+1<<20))
	var links []cache.Link
	others := 0
	for range maxEntries {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return links, nil
		}
		if err != nil {
			return nil, broken(j, l, err)
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		switch {
		case strings.HasPrefix(path.Base(name), whiteout):
			links = append(links, cache.Link{Name: name})
		case h.Typeflag != tar.TypeReg:
		case j.wants(name) && (isWeights(name) || h.Size <= maxBeside):
			m, err := j.member(ctx, l, name, h.Size, t)
			if err != nil {
				return nil, err
			}
			links = append(links, m)
		case others < maxOthers:
			others++
			links = append(links, cache.Link{Name: name, Bytes: h.Size})
		}
	}
	return nil, refuse(Unsupported, "%s: layer %s has more than %d entries", j.uri, l.Name, maxEntries)
}

func broken(j *job, l source.File, err error) error {
	var full *cache.NoSpaceError
	var unwritable *cache.UnwritableError
	if errors.As(err, &full) || errors.As(err, &unwritable) {
		return err
	}
	return refuse(Unsupported, "%s: layer %s can't be unpacked as %s: %v", j.uri, l.Name, l.Archive, err)
}

func decompressed(r io.Reader, a source.Archive) (io.Reader, func(), error) {
	switch a {
	case source.TarGzip:
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, nil, err
		}
		return z, func() { _ = z.Close() }, nil
	case source.TarZstd:
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return r, func() {}, nil
}

// wants reports whether a file of an archive may be part of the model.
func (j *job) wants(name string) bool {
	if j.request.File != "" {
		return name == j.request.File
	}
	return allowed(name, j.request.Allow) && (isWeights(name) && !strings.Contains(name, "/") || isBeside(name))
}

// member puts a file of an archive into the cache.
func (j *job) member(ctx context.Context, l source.File, name string, size int64, r io.Reader) (cache.Link, error) {
	if size > maxBytes {
		return cache.Link{}, j.tooLarge(source.File{Name: name, Bytes: size})
	}
	k := cache.Key("member", l.SHA256, name)
	lock, err := j.cache.Lock(ctx, k, nil)
	if err != nil {
		return cache.Link{}, err
	}
	defer lock.Unlock()
	if err := j.cache.Room(size, k, key(l)); err != nil {
		return cache.Link{}, err
	}
	p, err := j.cache.Partial(k, size, "")
	if err != nil {
		return cache.Link{}, err
	}
	defer p.Close() //nolint:errcheck // what is not committed is discarded
	sum, err := j.copyMember(ctx, l, p, size, r)
	if err == nil {
		_, err = j.cache.Commit(p, sum)
	}
	if err != nil {
		p.Discard()
		return cache.Link{}, err
	}
	return cache.Link{Name: name, SHA256: sum, Bytes: size}, nil
}

func (j *job) copyMember(ctx context.Context, l source.File, p *cache.Partial, size int64, r io.Reader) (string, error) {
	h, b := sha256.New(), make([]byte, hashStep)
	for at := int64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := io.ReadFull(r, b[:min(size-at, int64(len(b)))])
		if err != nil {
			return "", broken(j, l, err)
		}
		_, _ = h.Write(b[:n])
		if _, err := p.WriteAt(b[:n], at); err != nil {
			return "", err
		}
		at += int64(n)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// layered puts m over the files so far.
func layered(files []source.File, m cache.Link) []source.File {
	dir, base := path.Split(m.Name)
	gone := ""
	switch {
	case base == opaque:
		return slices.DeleteFunc(files, func(f source.File) bool { return strings.HasPrefix(f.Name, dir) })
	case strings.HasPrefix(base, whiteout):
		gone = dir + strings.TrimPrefix(base, whiteout)
		return slices.DeleteFunc(files, func(f source.File) bool { return f.Name == gone || strings.HasPrefix(f.Name, gone+"/") })
	}
	return replaced(files, source.File{Name: m.Name, Bytes: m.Bytes, SHA256: m.SHA256, Identity: "member"})
}

func replaced(files []source.File, f source.File) []source.File {
	files = slices.DeleteFunc(files, func(g source.File) bool { return g.Name == f.Name })
	return append(files, f)
}

// counted tells how much was read.
type counted struct {
	r     io.Reader
	count func(int64)
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.count(int64(n))
	return n, err
}
