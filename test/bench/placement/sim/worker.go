package sim

import (
	"slices"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/placement/trace"
)

// Job is a request on a worker.
type Job struct {
	Request *trace.Request
	Worker  int
	// Matched are the leading blocks of the prompt that the worker's cache held.
	Matched int
	// Cached and Prefill are the prompt's tokens that need not and must be computed; at least one must.
	Cached, Prefill int
	// Placed, Begin, First and End are when it came to the worker, when its prompt began to be computed, when it had its
	// first token, and when its last.
	Placed, Begin, First, End time.Duration
}

// Worker computes one prompt after the other, in the order in which they came, and makes the tokens of all answers at
// the same time.
type Worker struct {
	cache *Cache
	rate  float64       // prompt tokens a second
	token time.Duration // for each token of an answer
	free  time.Duration // when all prompts that it has are computed
	first time.Duration // when the first prompt is computed
	jobs  []*Job        // those that have not ended, in the order in which they came

	prefilled, placed int
}

// take puts a request at the end of what the worker has to do. The cache is asked and filled at once: as prompts are
// computed in the order in which they come, it finds the same as it would when the prompt's turn has come.
func (w *Worker) take(q *trace.Request, worker int, now time.Duration) *Job {
	j := &Job{Request: q, Worker: worker, Matched: w.cache.Match(q.Blocks), Placed: now, Begin: max(now, w.free)}
	w.cache.Use(q.Blocks)
	j.Cached = min(j.Matched*trace.BlockTokens, q.Input-1)
	j.Prefill = q.Input - j.Cached
	j.First = j.Begin + w.seconds(j.Prefill)
	j.End = j.First + time.Duration(q.Output)*w.token
	if w.placed == 0 {
		w.first = j.First
	}
	w.free = j.First
	w.jobs = append(w.jobs, j)
	w.prefilled += j.Prefill
	w.placed++
	return j
}

func (w *Worker) end(j *Job) {
	if i := slices.Index(w.jobs, j); i >= 0 {
		w.jobs = slices.Delete(w.jobs, i, i+1)
	}
}

// Rate is the tokens of prompts that it computes in a second; 0 before it has computed one.
func (w *Worker) Rate(now time.Duration) float64 {
	if w.placed == 0 || w.first > now {
		return 0
	}
	return w.rate
}

func (w *Worker) seconds(tokens int) time.Duration {
	return time.Duration(float64(tokens) * float64(time.Second) / w.rate)
}

// Cache is what it keeps of prompts.
func (w *Worker) Cache() *Cache { return w.cache }

// Jobs are the requests that have not ended, in the order in which they came. The caller must not change them.
func (w *Worker) Jobs() []*Job { return w.jobs }

// Wait is how long the prompts that it has still take.
func (w *Worker) Wait(now time.Duration) time.Duration { return max(0, w.free-now) }

// Prefill is how long a prompt would take to compute, with what the cache holds.
func (w *Worker) Prefill(q *trace.Request) time.Duration {
	return w.seconds(q.Input - min(w.cache.Match(q.Blocks)*trace.BlockTokens, q.Input-1))
}

// Waiting is the number of requests whose prompts have not begun to be computed.
func (w *Worker) Waiting(now time.Duration) int {
	n := 0
	for i := len(w.jobs) - 1; i >= 0 && w.jobs[i].Begin > now; i-- {
		n++
	}
	return n
}

// Backlog is the tokens of prompts that are still to be computed.
func (w *Worker) Backlog(now time.Duration) int {
	return int(w.Wait(now).Seconds()*w.rate + 0.5)
}

// Held is the tokens that its requests hold in the KV cache: of the prompts that were begun, and of the answers so far.
func (w *Worker) Held(now time.Duration) int {
	n := 0
	for _, j := range w.jobs {
		if j.Begin <= now {
			n += j.Request.Input
		}
		if now > j.First {
			n += int((now - j.First) / w.token)
		}
	}
	return n
}

// Room is the tokens that its KV cache has room for.
func (w *Worker) Room() int { return w.cache.room * trace.BlockTokens }
