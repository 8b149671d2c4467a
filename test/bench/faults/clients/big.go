package clients

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/router/server"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

const mebi = 1 << 20

// largeHeaders is F75.
func largeHeaders() []trial.Trial {
	heads := []struct {
		name, extra string
	}{
		{"a field of 33 KiB", "X-Large: " + strings.Repeat("x", 33<<10)},
		{"a field of 1 MiB", "X-Large: " + strings.Repeat("x", mebi)},
		{"10,000 fields", manyFields(10_000)},
	}
	return []trial.Trial{{
		ID: "F75", Says: "heads that are too large", Times: 20, Takes: 3 * time.Second, Spec: rig.Spec{Workers: 1},
		Run: func(ctx context.Context, r *rig.Rig, times int) (figures []bench.Figure, err error) {
			r.Foreign()
			x := r.Routers[0]
			for _, h := range heads {
				right, grown := 0, 0.0
				for range times {
					n, err := x.Growth(func() error {
						a, err := ask(ctx, r, head(2, h.extra)+"{}")
						if a.status == 431 {
							right++
						}
						return err
					})
					if err != nil {
						return nil, fmt.Errorf("%s: %w", h.name, err)
					}
					grown = max(grown, n)
				}
				figures = append(figures,
					bench.AtLeast("F75 "+h.name+", answered 431", 100*float64(right)/float64(times), "%", 100),
					bench.AtMost("F75 "+h.name+", memory more than before each, greatest", grown/mebi, "MiB", 2))
			}
			a, err := ask(ctx, r, head(2, "X-Large: "+strings.Repeat("x", 30<<10))+"{}")
			if err != nil {
				return nil, err
			}
			return append(figures, bench.AtLeast("F75 a field of 30 KiB, taken", truth(a.status == 400), "", 1)), nil
		},
	}}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// manyFields are so many fields of a head, without the last one's end.
func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "X-%d: x\r\n", i)
	}
	return strings.TrimSuffix(b.String(), "\r\n")
}

// ask sends bytes on a connection of their own and waits for the answer. A router that answers before it has read all may end
// the connection: then what it said is still there to be read.
func ask(ctx context.Context, r *rig.Rig, request string) (answer, error) {
	c, err := dial(ctx, address(r.Routers[0]), 0)
	if err != nil {
		return answer{}, err
	}
	defer c.Close() //nolint:errcheck // it was read
	sent := make(chan time.Time, 1)
	go func() {
		_, _ = c.Write([]byte(request))
		sent <- time.Now()
	}()
	a, err := c.answer(20 * time.Second)
	answered := time.Now()
	_ = c.Close()
	a.took = max(answered.Sub(<-sent), 0)
	return a, err
}

// sized is a chat whose body has exactly so many bytes.
func sized(n int) string {
	begin := fmt.Sprintf(`{"model":%q,"max_tokens":4,"messages":[{"role":"user","content":"%ssized `, rig.ModelName, engine.Mark)
	const end = `"}]}`
	return begin + strings.Repeat("x", n-len(begin)-len(end)) + end
}

// largeBodies is F76.
func largeBodies() []trial.Trial {
	return []trial.Trial{{
		ID: "F76", Says: "bodies at the limit and beyond it, without an end, and compressed", Times: 5, Takes: 9 * time.Second, Spec: rig.Spec{Workers: 1},
		Run: func(ctx context.Context, r *rig.Rig, times int) (figures []bench.Figure, err error) {
			r.Foreign()
			most := int(server.Defaults().MaxBodyBytes)
			for _, b := range []struct {
				name string
				size int
				want int
			}{
				{"32,768 bytes", 32_768, 200}, {"32,769 bytes", 32_769, 200}, {"1 MiB", mebi, 200},
				{"the limit less one", most - 1, 200}, {"the limit", most, 200}, {"the limit and one", most + 1, 413},
			} {
				body := sized(b.size)
				for _, way := range []struct{ name, request string }{
					{"with a length", head(len(body)) + body}, {"in chunks", head(-1) + chunks(body)},
				} {
					f, err := bodyOf(ctx, r, times, b.name+" "+way.name, way.request, b.want)
					if err != nil {
						return nil, fmt.Errorf("%s %s: %w", b.name, way.name, err)
					}
					figures = append(figures, f...)
				}
			}
			endless, err := endlessChunks(ctx, r, times, most)
			if err != nil {
				return nil, err
			}
			bomb, err := gzipBomb(ctx, r, times)
			return append(append(figures, endless...), bomb...), err
		},
	}}
}

// chunks is a body in chunks of 64 KiB.
func chunks(body string) string {
	var b strings.Builder
	for len(body) > 0 {
		n := min(len(body), 64<<10)
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}

// bodyOf sends a request several times and holds the status to what it must be.
func bodyOf(ctx context.Context, r *rig.Rig, times int, name, request string, want int) ([]bench.Figure, error) {
	right, other := 0, 0
	var took trial.Series
	for range times {
		a, err := ask(ctx, r, request)
		if err != nil {
			return nil, err
		}
		if took.Took(a.took); a.status == want {
			right++
		} else {
			other = a.status
		}
	}
	if other != 0 {
		fmt.Fprintf(r.Shared.Out, "  F76 %s: answered %d\n", name, other)
	}
	figures := []bench.Figure{bench.AtLeast(fmt.Sprintf("F76 %s, answered %d", name, want), 100*float64(right)/float64(times), "%", 100)}
	if want == 413 {
		figures = append(figures, bench.AtMost("F76 "+name+", longest time to the answer since all was sent", 1000*took.Max(), "ms", 100))
	}
	return figures, nil
}

// endlessChunks sends chunks until there is an answer. What counts is the time since the byte that is too many, and the memory.
func endlessChunks(ctx context.Context, r *rig.Rig, times, limit int) ([]bench.Figure, error) {
	x := r.Routers[0]
	right := 0
	var took trial.Series
	grown, err := x.Growth(func() error {
		for range times {
			c, err := dial(ctx, address(x), 0)
			if err != nil {
				return err
			}
			beyond := make(chan time.Time, 1)
			go pour(c, limit, beyond)
			a, err := c.answer(20 * time.Second)
			answered := time.Now()
			_ = c.Close()
			at := <-beyond
			if err != nil {
				return fmt.Errorf("chunks without an end: %w", err)
			}
			if a.status == 413 {
				right++
			}
			took.Took(max(answered.Sub(at), 0))
		}
		return nil
	})
	return []bench.Figure{
		bench.AtLeast("F76 chunks without an end, answered 413", 100*float64(right)/float64(times), "%", 100),
		bench.AtMost("F76 chunks without an end, longest time to the answer since the limit", 1000*took.Max(), "ms", 100),
		bench.AtMost("F76 chunks without an end, memory more than before", grown/mebi, "MiB", 3*float64(limit)/mebi),
	}, err
}

// pour sends chunks until the connection ends, and tells when the limit was passed.
func pour(c *conn, limit int, beyond chan<- time.Time) {
	const size = 64 << 10
	chunk := fmt.Sprintf("%x\r\n%s\r\n", size, strings.Repeat("x", size))
	_, err := c.Write([]byte(head(-1)))
	for sent := 0; err == nil; sent += size {
		if sent > limit && sent-size <= limit {
			beyond <- time.Now()
		}
		_, err = c.Write([]byte(chunk))
	}
	select {
	case beyond <- time.Now(): // it was answered before
	default:
	}
}

// gzipBomb sends a small body that is a large one.
func gzipBomb(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for range 256 {
		if _, err := z.Write(make([]byte, mebi)); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	var figures []bench.Figure
	grown, err := r.Routers[0].Growth(func() (err error) {
		figures, err = bodyOf(ctx, r, times, "256 MiB of zeros in gzip", head(b.Len(), "Content-Encoding: gzip")+b.String(), 415)
		return err
	})
	return append(figures, bench.AtMost("F76 256 MiB of zeros in gzip, memory more than before", grown/mebi, "MiB", 2)), err
}
