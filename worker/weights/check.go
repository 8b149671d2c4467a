package weights

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"
)

// algorithm is the only kind of digest taken.
const algorithm = "sha256:"

// chunk is how much is hashed between two looks at ctx.
const chunk = 4 << 20

// Inspect reads the head of the weights at path and checks that the file is as long as it says. It takes some
// milliseconds. The error is an *engine.LoadError.
func Inspect(path string) (*Header, error) {
	f, size, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadHeader(f, path, size)
}

// Check does what Inspect does and, where digest ("sha256:" and 64 hexadecimal digits) isn't empty, compares the whole
// file with it, which reads all of it. progress, if not nil, gets every new percentage of that from 0 to 100. The error is
// an *engine.LoadError or that of ctx.
func Check(ctx context.Context, path, digest string, progress func(percent int)) (*Header, error) {
	f, size, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h, err := ReadHeader(f, path, size)
	if err != nil || digest == "" {
		return h, err
	}
	return h, compare(ctx, io.NewSectionReader(f, 0, int64(size)), path, size, digest, progress)
}

// Compare does to a file of any format what Check does with a digest, and doesn't look at its head.
func Compare(ctx context.Context, path, digest string, progress func(percent int)) error {
	f, size, err := open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return compare(ctx, f, path, size, digest, progress)
}

func open(path string) (*os.File, uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, refuse(NotFound, "the weights file %s can't be opened: %v", path, cause(err))
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, 0, refuse(NotFound, "the weights %s are no regular file", path)
	}
	return f, uint64(info.Size()), nil
}

func compare(ctx context.Context, r io.Reader, path string, size uint64, digest string, progress func(int)) error {
	want, ok := strings.CutPrefix(strings.ToLower(digest), algorithm)
	if raw, err := hex.DecodeString(want); !ok || err != nil || len(raw) != sha256.Size {
		return refuse(DigestMismatch, "the digest %q is none: expected %s and 64 hexadecimal digits", digest, algorithm)
	}
	hash, last, done := sha256.New(), -1, uint64(0)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.CopyN(hash, r, chunk)
		done += uint64(n)
		if p := percent(done, size); progress != nil && p != last {
			last = p
			progress(p)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return refuse(NotFound, "the weights file %s can't be read at byte %d: %v", path, done, cause(err))
		}
	}
	if found := hex.EncodeToString(hash.Sum(nil)); found != want {
		return refuse(DigestMismatch, "the weights file %s has another digest: expected %s%s, found %s%s", path,
			algorithm, want, algorithm, found)
	}
	return nil
}

func percent(done, size uint64) int {
	if done >= size {
		return 100
	}
	return int(done * 100 / size)
}
