package fetch

import (
	"context"
	"crypto/sha1" // as git, which hubs state for small files; it only tells them apart
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/weights/cache"
	"github.com/ringfleet/ringfleet/worker/weights/source"
)

// Sizes of reading.
const (
	buffer   = 256 << 10
	headway  = 1 << 20 // bytes after which a broken request counts as progress
	hashStep = 1 << 20
)

// download fetches one file.
type download struct {
	src         source.Source
	file        source.File
	to          *cache.Partial
	retry       *retry
	clock       clock.WithTicker
	connections int
	spanPieces  int64
	count       func(int64) // of bytes that are written
	verifying   func()      // called when all bytes are there and not all are hashed

	first func() // to be called with the first bytes
}

// digests are what a file turned out to have.
type digests struct{ sha256, git string }

// run fetches what is missing and returns the digests of the whole file. Hashing follows the fetching from the start of the
// file, so that little of it is left at the end.
func (d *download) run(ctx context.Context) (digests, error) {
	var sums digests
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() (err error) {
		sums, err = d.hash(ctx)
		return err
	})
	all.Go(func() error {
		if err := d.fetch(ctx); err != nil {
			return err
		}
		d.verifying()
		return nil
	})
	return sums, all.Wait()
}

// fetch gets the missing spans, several at a time.
func (d *download) fetch(ctx context.Context) error {
	if d.file.Whole {
		if d.to.There() == d.file.Bytes {
			return nil
		}
		return d.wholly(ctx)
	}
	spans := d.to.Missing(d.spanPieces)
	var next atomic.Int64
	answered := make(chan struct{}) // with a part: until then one request finds out whether the source has any
	d.first = sync.OnceFunc(func() { close(answered) })
	some, ctx := errgroup.WithContext(ctx)
	for n := range min(d.connections, len(spans)) {
		some.Go(func() error {
			if n > 0 {
				select {
				case <-answered:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			b := make([]byte, buffer)
			for i := next.Add(1) - 1; i < int64(len(spans)); i = next.Add(1) - 1 {
				if err := d.span(ctx, spans[i], b); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return some.Wait()
}

// span fetches one span, resuming within it where a request broke off.
func (d *download) span(ctx context.Context, s cache.Span, b []byte) error {
	at := s.From
	return d.retry.do(ctx, func(ctx context.Context) (bool, error) {
		n, err := d.request(ctx, cache.Span{From: at, To: s.To}, s.From, b)
		at += n
		return n >= headway, err
	})
}

// wholly fetches a file from a server that sends no parts: what breaks off begins anew, once.
func (d *download) wholly(ctx context.Context) error {
	b := make([]byte, buffer)
	d.first = func() {}
	begun := 0
	return d.retry.do(ctx, func(ctx context.Context) (bool, error) {
		n, err := d.request(ctx, cache.Span{From: 0, To: d.file.Bytes}, 0, b)
		if err == nil || n == 0 {
			return false, err
		}
		d.count(-n)
		if begun++; begun == 2 {
			return false, refuse(SourceUnreachable, "%s; the server sends no parts, so it can't be gone on with", err)
		}
		return false, err
	})
}

// request fetches s by one request and returns how many bytes of it were written. begin is where the span of s began.
func (d *download) request(ctx context.Context, s cache.Span, begin int64, b []byte) (n int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := d.watch(ctx, cancel)
	body, err := d.src.Open(ctx, d.file, s.From, s.To)
	if err == nil {
		defer body.Close()
		n, err = d.copy(body, s, begin, b, alive)
	}
	if errors.Is(context.Cause(ctx), errStalled) {
		err = &source.Error{Kind: source.Unreachable, Says: fmt.Sprintf("%s: no byte came for %s, at byte %d of %d", d.file.Name, stall, s.From+n, d.file.Bytes)}
	}
	return n, err
}

func (d *download) copy(body io.Reader, s cache.Span, begin int64, b []byte, alive func()) (n int64, err error) {
	for s.From+n < s.To {
		got, err := body.Read(b)
		if got > 0 {
			alive()
			d.first()
			if _, err := d.to.WriteAt(b[:got], s.From+n); err != nil {
				return n, err
			}
			n += int64(got)
			d.count(int64(got))
			if err := d.to.Wrote(cache.Span{From: begin, To: s.From + n}); err != nil {
				return n, err
			}
		}
		if err != nil && s.From+n < s.To {
			return n, &source.Error{Kind: source.Unreachable,
				Says: fmt.Sprintf("%s broke off at byte %d of %d: %s", d.file.Name, s.From+n, d.file.Bytes, err)}
		}
	}
	return n, nil
}

var errStalled = errors.New("stalled")

// watch ends a request that gives nothing for a minute. alive puts that off. It ends with ctx.
func (d *download) watch(ctx context.Context, cancel context.CancelCauseFunc) (alive func()) {
	var seen atomic.Int64
	t := d.clock.NewTimer(stall)
	go func() {
		defer t.Stop()
		for last := int64(0); ; {
			select {
			case <-ctx.Done():
				return
			case <-t.C():
			}
			now := seen.Load()
			if now == last {
				cancel(errStalled)
				return
			}
			last = now
			t.Reset(stall)
		}
	}()
	return func() { seen.Add(1) }
}

// hash reads the file behind the fetching.
func (d *download) hash(ctx context.Context) (digests, error) {
	sum := sha256.New()
	into := io.Writer(sum)
	var git hash.Hash
	if d.file.GitOID != "" {
		git = sha1.New()
		fmt.Fprintf(git, "blob %d\x00", d.file.Bytes)
		into = io.MultiWriter(sum, git)
	}
	b := make([]byte, hashStep)
	for at := int64(0); at < d.file.Bytes; {
		there, changed := d.to.Frontier()
		if there == at {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return digests{}, ctx.Err()
			}
		}
		n := min(there-at, int64(len(b)))
		if _, err := d.to.ReadAt(b[:n], at); err != nil {
			return digests{}, err
		}
		_, _ = into.Write(b[:n])
		at += n
		if ctx.Err() != nil {
			return digests{}, ctx.Err()
		}
	}
	out := digests{sha256: hex.EncodeToString(sum.Sum(nil))}
	if git != nil {
		out.git = hex.EncodeToString(git.Sum(nil))
	}
	return out, nil
}
