// Package source knows where weights come from: hubs, object stores, web servers, registries. It lists the files that a
// URI stands for, with their sizes and digests as the source itself states them, and opens ranges of them. It decides
// nothing about which files are wanted, how often is retried and where bytes go: package fetch does. It never holds more
// than a listing in memory, and no error of it holds a credential or the query of a URL.
package source

import (
	"context"
	"fmt"
	"io"
	"path"
	"time"
)

// Bounds of a listing.
const (
	maxFiles    = 10_000
	maxResponse = 16 << 20 // bytes of a listing's response
)

// File is one file of a source.
type File struct {
	// Name is its path below the source's root, with slashes and without . and .. parts.
	Name string
	// Bytes is its size; -1 until Stat.
	Bytes int64
	// SHA256 in hexadecimal, where the source states it.
	SHA256 string
	// GitOID is the SHA-1 of the file as a git object, where the source states that and no SHA256.
	GitOID string
	// Version changes when the content does, such as an ETag; empty where the source says nothing of the kind.
	Version string
	// Identity names the file among all sources, without credentials. Equal identities, versions and sizes are one file.
	Identity string
	// Whole: the source can't send parts of it.
	Whole bool
	// Archive says that the file is no model's file but an archive of such: a layer of an image.
	Archive Archive

	at string // where the source finds it
}

// Archive is the format of a file that holds others.
type Archive string

// The formats. The empty one is no archive.
const (
	Tar     Archive = "tar"
	TarGzip Archive = "tar+gzip"
	TarZstd Archive = "tar+zstd"
)

// Listing is what a source holds.
type Listing struct {
	// Revision is what the URI led to, such as a commit or a digest; empty where the source has none.
	Revision string
	Files    []File
}

// Source is where files come from. Errors are *Error, or the context's.
type Source interface {
	// List returns the files. Sizes and digests may be missing until Stat.
	List(ctx context.Context) (Listing, error)
	// Stat returns f with its size, and with digest and version where the source states them.
	Stat(ctx context.Context, f File) (File, error)
	// Open returns the bytes [from, to) of f as Stat described it. An *Error with Changed means that it is another file by
	// then. The reader ends early only with an error.
	Open(ctx context.Context, f File, from, to int64) (io.ReadCloser, error)
}

// Kind is why a source doesn't give what it was asked for.
type Kind string

// The kinds.
const (
	// NotFound: there is no such repository, bucket, revision or file.
	NotFound Kind = "NotFound"
	// Unauthorized: the credentials are missing, wrong or not enough.
	Unauthorized Kind = "Unauthorized"
	// Forbidden: our own rules don't let us go there.
	Forbidden Kind = "Forbidden"
	// Unreachable: no answer, or one that says that another attempt may help.
	Unreachable Kind = "Unreachable"
	// Limited: too many requests.
	Limited Kind = "Limited"
	// Changed: the file is not the one that Stat described.
	Changed Kind = "Changed"
	// NoRanges: a part was asked for, and the source only sends the whole.
	NoRanges Kind = "NoRanges"
	// Unusable: the answer or the URI makes no sense to us.
	Unusable Kind = "Unusable"
)

// Error is why a source doesn't give what it was asked for.
type Error struct {
	Kind Kind
	// Says is a sentence without credentials.
	Says string
	// After is how long the source asks us to wait; 0: it doesn't say.
	After time.Duration
}

func (e *Error) Error() string { return e.Says }

// Temporary reports whether the same request may succeed later.
func (e *Error) Temporary() bool { return e.Kind == Unreachable || e.Kind == Limited }

func refuse(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Says: fmt.Sprintf(format, args...)}
}

// clean returns name as a path below a root, or false where it isn't one.
func clean(name string) (string, bool) {
	if name == "" || len(name) > 1024 || name[0] == '/' {
		return "", false
	}
	c := path.Clean(name)
	if c != name || c == "." || c == ".." || len(c) > 2 && c[:3] == "../" {
		return "", false
	}
	for _, r := range c {
		if r < ' ' || r == 0x7f || r == '\\' {
			return "", false
		}
	}
	return c, true
}

// part is a reader of exactly n bytes: it ends early with io.ErrUnexpectedEOF and late not at all.
type part struct {
	body io.ReadCloser
	n    int64
}

func (p *part) Read(b []byte) (int, error) {
	if p.n == 0 {
		return 0, io.EOF
	}
	n, err := p.body.Read(b[:min(int64(len(b)), p.n)])
	p.n -= int64(n)
	if err == io.EOF && p.n > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (p *part) Close() error { return p.body.Close() }
