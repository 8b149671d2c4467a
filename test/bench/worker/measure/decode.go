package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
	"github.com/ringfleet/ringfleet/test/bench/worker/peers"
	"github.com/ringfleet/ringfleet/test/bench/worker/timeline"
)

const (
	// prompt is of so many tokens, and steps so many are decoded after it at least, in every sequence.
	prompt = 16
	steps  = 32
)

var sizes = []int{1, 2, 4, 8, 16}

// length is how many steps n sequences decode: few sequences more of them, so that each measure lasts a second at least.
func length(n int) int { return max(4*steps/n, steps) }

// decode compares the worker with llama-batched-bench at several sizes: tokens a second while all sequences run, and the
// processor time of a token. The worker chooses tokens, makes text of them and sends it; the other does neither. In every
// third pair the other also decodes with one KV cache for all sequences, as the worker has it, the worker while it keeps the
// prefixes of 16 earlier requests, whose cells each step passes over, and llama-server shows what it does.
func (r *Rig) decode(ctx context.Context) ([]pairs.Row, error) {
	bare, err := peers.StartWorker(ctx, r.fleet, r.Programs, "--idle-sequences=0")
	if err != nil {
		return nil, err
	}
	defer bare.Stop()
	if err := r.fill(ctx); err != nil {
		return nil, err
	}
	s := series{}
	one := func(ctx context.Context, i int) error {
		for j, n := range sizes {
			sides := []func() error{
				func() error { return r.workerDecodes(ctx, s, "bare", bare, n) },
				func() error { return r.batchedDecodes(ctx, s, n, false) },
			}
			if i%beside == 0 {
				sides = append(sides, func() error { return r.batchedDecodes(ctx, s, n, true) },
					func() error { return r.workerDecodes(ctx, s, "worker", r.worker, n) },
					func() error { return r.serverDecodes(ctx, s, n) })
			}
			for k := range sides {
				if err := sides[(i+j+k)%len(sides)](); err != nil {
					return fmt.Errorf("%d sequences: %w", n, err)
				}
			}
			if i%beside == 0 {
				s.add(at("bare then", n), s[at("bare", n)][i])
				s.add(at("bare CPU then", n), s[at("bare CPU", n)][i])
			}
		}
		return nil
	}
	return r.turns(ctx, one, func() []pairs.Row { return decodeRows(s) })
}

// fill gives the worker prefixes to keep.
func (r *Rig) fill(ctx context.Context) error {
	_, err := peers.Crowd(ctx, r.worker, r.corpus.Requests(peers.Sequences, nil, prompt, steps+1))
	return err
}

// at names a series of a size.
func at(what string, n int) string { return fmt.Sprint(what, " ", n) }

func (r *Rig) workerDecodes(ctx context.Context, s series, name string, w *peers.Worker, n int) error {
	requests := r.corpus.Requests(n, nil, prompt, length(n)+1) // the first token comes of the prompt
	m := &meter{read: w.CPU, streams: n, last: length(n) + 1}
	for i := range requests {
		requests[i].Each = m.stream()
	}
	answers, err := peers.Crowd(ctx, w, requests)
	if err != nil {
		return err
	}
	share, err := m.share()
	rate := timeline.Decode(answers)
	s.add(at(name, n), rate)
	s.add(at(name+" CPU", n), 1000*share/rate)
	return err
}

// meter reads a processor time when all streams have begun, and again when one has ended.
type meter struct {
	read          func() (time.Duration, error)
	streams, last int

	mu       sync.Mutex // guards what follows
	begun    int
	from, to reading
}

type reading struct {
	at   time.Time
	used time.Duration
	err  error
}

// stream returns what is to be told of the tokens of one stream so far.
func (m *meter) stream() func(tokens int) {
	begun := false
	return func(tokens int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !begun {
			begun = true
			if m.begun++; m.begun == m.streams {
				m.from = m.now()
			}
		}
		if tokens >= m.last && m.to.at.IsZero() {
			m.to = m.now()
		}
	}
}

func (m *meter) now() reading {
	used, err := m.read()
	return reading{at: time.Now(), used: used, err: err}
}

// share is how much of a processor was used in between.
func (m *meter) share() (float64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.from.at.IsZero() || !m.to.at.After(m.from.at) {
		return 0, errors.New("the streams never all ran at once")
	}
	return (m.to.used - m.from.used).Seconds() / m.to.at.Sub(m.from.at).Seconds(), errors.Join(m.from.err, m.to.err)
}

func (r *Rig) batchedDecodes(ctx context.Context, s series, n int, unified bool) error {
	p, err := peers.Batched{Sequences: n, Prompt: prompt, Steps: length(n), Unified: unified}.Run(ctx, r.Programs)
	if err != nil {
		return err
	}
	name := "batched"
	if unified {
		name = "unified"
	}
	s.add(at(name, n), p.Rate)
	s.add(at(name+" CPU", n), p.CPU.Seconds()*1000)
	return nil
}

func (r *Rig) serverDecodes(ctx context.Context, s series, n int) error {
	answers, err := peers.Crowd(ctx, r.llama, r.corpus.Requests(n, nil, prompt, length(n)+1))
	s.add(at("llama-server", n), timeline.Decode(answers))
	return err
}

func decodeRows(s series) []pairs.Row {
	var out []pairs.Row
	for _, n := range sizes {
		name := fmt.Sprintf("decode, %s: ", sequences(n))
		rate := func(a, b string) pairs.Series { return pairs.Over(s[at(a, n)], s[at(b, n)]) }
		used := func(a, b string) pairs.Series { return pairs.Over(s[at(a+" CPU", n)], s[at(b+" CPU", n)]) }
		out = append(out,
			pairs.AtLeast(name+"tokens/s, worker / llama-batched-bench", rate("bare", "batched"), "×", 0.97),
			pairs.AtMost(name+"CPU, worker / llama-batched-bench", used("bare", "batched"), "×", 1.05),
			pairs.Plain(name+"tokens/s, worker / llama-batched-bench with one KV cache", rate("bare then", "unified"), "×"),
			pairs.Plain(name+"CPU, worker / llama-batched-bench with one KV cache", pairs.Over(s[at("bare CPU then", n)], s[at("unified CPU", n)]), "×"),
			pairs.Plain(name+"tokens/s, worker with 16 idle prefixes / without", rate("worker", "bare then"), "×"),
			pairs.Plain(name+"CPU, worker with 16 idle prefixes / without", pairs.Over(s[at("worker CPU", n)], s[at("bare CPU then", n)]), "×"),
		)
		for _, side := range []struct{ name, key string }{
			{"worker", "bare"}, {"worker with 16 idle prefixes", "worker"},
			{"llama-batched-bench", "batched"}, {"llama-batched-bench with one KV cache", "unified"},
		} {
			out = append(out, pairs.Plain(name+side.name, s[at(side.key, n)], "tokens/s"),
				pairs.Plain(name+side.name+", CPU of a token", s[at(side.key+" CPU", n)], "ms"))
		}
		out = append(out, pairs.Plain(name+"llama-server", s[at("llama-server", n)], "tokens/s"))
	}
	return out
}

func sequences(n int) string {
	if n == 1 {
		return "1 sequence"
	}
	return fmt.Sprint(n, " sequences")
}

// vllm is asked once at each size, for orientation: its weights are bfloat16, not four bits.
func (r *Rig) vllm(ctx context.Context) ([]pairs.Row, error) {
	if r.Programs.VLLM == "" {
		_, err := fmt.Fprintln(r.Out, "vLLM is not installed (go run ./hack/engines vllm): it takes no part")
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, hangs)
	defer cancel()
	server, err := peers.StartVLLM(ctx, r.Programs)
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	if _, err := peers.Crowd(ctx, server, r.corpus.Requests(2, nil, prompt, 4)); err != nil {
		return nil, err
	}
	var out []pairs.Row
	for _, n := range sizes {
		answers, err := peers.Crowd(ctx, server, r.corpus.Requests(n, nil, prompt, length(n)+1))
		if err != nil {
			return out, fmt.Errorf("%s: %w", sequences(n), err)
		}
		out = append(out, pairs.Plain(fmt.Sprintf("decode, %s: vLLM, bfloat16", sequences(n)), pairs.Series{timeline.Decode(answers)}, "tokens/s"))
	}
	return out, nil
}
