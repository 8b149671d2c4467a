package peers

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/placement/sim"
	"github.com/ringfleet/ringfleet/test/bench/placement/trace"
)

// matched is the share of a prompt's blocks that a worker's cache begins with.
func matched(w *sim.Worker, q *trace.Request) float64 {
	return float64(w.Cache().Match(q.Blocks)) / float64(len(q.Blocks))
}

// cacheAware is the rule of SGLang's router. Loads lie apart when the greatest is more than apart above the least and
// more than ratio times it: then the least loaded worker takes the request. Else the one with the longest match, the first
// of equals, if that is more than threshold of the prompt; else the least loaded one.
func cacheAware(threshold, apart, ratio float64) func(*fleet) rule {
	return func(f *fleet) rule {
		return func(q *trace.Request, _ time.Duration) int {
			least, most, _ := f.loads()
			if most-least > apart && most > ratio*least {
				return f.least(load)
			}
			best, longest := 0, 0.0
			for i, w := range f.Workers {
				if m := matched(w, q); m > longest {
					best, longest = i, m
				}
			}
			if longest > threshold {
				return best
			}
			return f.least(load)
		}
	}
}

// prefixCache is the rule of AIBrix's prefix-cache. When the greatest load is more than apart above the least, the least
// loaded worker takes the request. Else the one with the longest match whose load is at most the mean plus so many
// standard deviations, the less loaded one of equals; without a match, the least loaded one.
func prefixCache(apart, deviations float64) func(*fleet) rule {
	return func(f *fleet) rule {
		return func(q *trace.Request, _ time.Duration) int {
			least, most, sum := f.loads()
			if most-least > apart {
				return f.least(load)
			}
			mean, squares := sum/float64(len(f.Workers)), 0.0
			order := make([]int, 0, len(f.Workers))
			for i, w := range f.Workers {
				squares += (load(w) - mean) * (load(w) - mean)
				if matched(w, q) > 0 {
					order = append(order, i)
				}
			}
			most = mean + deviations*math.Sqrt(squares/float64(len(f.Workers)))
			slices.SortStableFunc(order, func(a, b int) int {
				return cmp.Or(-cmp.Compare(matched(f.Workers[a], q), matched(f.Workers[b], q)), cmp.Compare(load(f.Workers[a]), load(f.Workers[b])))
			})
			for _, i := range order {
				if load(f.Workers[i]) <= most {
					return i
				}
			}
			return f.least(load)
		}
	}
}

// weights is the rule of llm-d's scheduler with the weights of its chart: the greatest weighted sum of the share of the
// prompt that is cached, of how short the queue is between the shortest and the longest, and of how much of the KV cache is
// free. A queue is the requests without a first token.
func weights(prefix, queue, kv float64) func(*fleet) rule {
	return func(f *fleet) rule {
		return func(q *trace.Request, now time.Duration) int {
			shortest, longest := math.Inf(1), 0.0
			for _, w := range f.Workers {
				n := pending(w, now)
				shortest, longest = min(shortest, n), max(longest, n)
			}
			return f.least(func(w *sim.Worker) float64 {
				short := 1.0
				if longest > shortest {
					short = (longest - pending(w, now)) / (longest - shortest)
				}
				free := 1 - min(1, float64(w.Held(now))/float64(w.Room()))
				return -(prefix*matched(w, q) + queue*short + kv*free)
			})
		}
	}
}

// pending is the number of requests without a first token.
func pending(w *sim.Worker, now time.Duration) float64 {
	n := 0.0
	for _, j := range w.Jobs() {
		if j.First > now {
			n++
		}
	}
	return n
}

// overlap is the older rule of Dynamo's router: the least sum of the blocks of prompts that are still to be computed,
// this one's without what is cached among them, and of the blocks of the prompts of all requests that have not ended.
func overlap(weight float64) func(*fleet) rule {
	return func(f *fleet) rule {
		return func(q *trace.Request, now time.Duration) int {
			return f.least(func(w *sim.Worker) float64 {
				held := 0
				for _, j := range w.Jobs() {
					held += j.Request.Input
				}
				uncached := q.Input - min(w.Cache().Match(q.Blocks)*trace.BlockTokens, q.Input)
				return (weight*float64(w.Backlog(now)+uncached) + float64(held)) / trace.BlockTokens
			})
		}
	}
}
