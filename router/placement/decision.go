package placement

import (
	"math"
	"strconv"
	"sync"
	"time"
)

// Decision is why a request went where it went. It holds nothing of the request's text.
type Decision struct {
	At                          time.Time
	RequestID, ModelUID, Policy string
	// Chosen is the worker that got it, RunnerUp the one of the others from which the first token would have come soonest;
	// without a pod when no other could take it.
	Chosen, RunnerUp Estimate
	// PromptTokens is the length of the prompt as it was estimated.
	PromptTokens int
	// Eligible is how many workers could take the request, within all bounds, of the InRing workers of the ring.
	Eligible, InRing int
}

// Estimate is what was predicted of a worker.
type Estimate struct {
	Pod string
	// Wait is how long it would take until it begins with the prompt, Prefill how long to compute it.
	Wait, Prefill time.Duration
	// Cached is how many tokens of the prompt it was thought to have.
	Cached int
	// Load is how many requests it had.
	Load int
}

// estimate is what a snapshot says of a worker.
func estimate(m *member, c *Candidate) Estimate {
	return Estimate{Pod: m.Pod, Wait: seconds(c.Wait), Prefill: seconds(c.Prefill), Cached: int(math.Round(c.Cached)), Load: c.Load}
}

// longest is what longer predictions are cut to.
const longest = 24 * time.Hour

func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), longest.Seconds()) * float64(time.Second))
}

// mostReason is the length of a reason, in bytes, and mostPolicy and mostPod what names in it are cut to.
const (
	mostReason = 256
	mostPolicy = 32
	mostPod    = 63
)

// Reason is the decision in one line, for a response's header: at most 256 bytes of visible ASCII, such as
//
//	LeastPredictedTTFT;wait=0.0ms;prefill=41.2ms;cached=1408/1573;load=3;eligible=7/8;next=chat-5d-2;next-wait=0.0ms;next-prefill=393.3ms
func (d *Decision) Reason() string {
	b := make([]byte, 0, mostReason)
	b = appendName(b, d.Policy, mostPolicy)
	b = appendTimes(b, ";wait=", ";prefill=", &d.Chosen)
	b = appendCount(b, ";cached=", d.Chosen.Cached)
	b = appendCount(b, "/", d.PromptTokens)
	b = appendCount(b, ";load=", d.Chosen.Load)
	b = appendCount(b, ";eligible=", d.Eligible)
	b = appendCount(b, "/", d.InRing)
	if d.RunnerUp.Pod != "" {
		b = appendName(append(b, ";next="...), d.RunnerUp.Pod, mostPod)
		b = appendTimes(b, ";next-wait=", ";next-prefill=", &d.RunnerUp)
	}
	return string(b[:min(len(b), mostReason)])
}

// appendName appends a name, cut to most bytes, with ? for what is not visible or would end it.
func appendName(b []byte, name string, most int) []byte {
	for i := range min(len(name), most) {
		c := name[i]
		if c <= ' ' || c > '~' || c == ';' {
			c = '?'
		}
		b = append(b, c)
	}
	return b
}

func appendTimes(b []byte, wait, prefill string, e *Estimate) []byte {
	b = appendMilliseconds(append(b, wait...), e.Wait)
	return appendMilliseconds(append(b, prefill...), e.Prefill)
}

func appendMilliseconds(b []byte, d time.Duration) []byte {
	return append(strconv.AppendFloat(b, float64(d)/float64(time.Millisecond), 'f', 1, 64), "ms"...)
}

func appendCount(b []byte, name string, n int) []byte {
	return strconv.AppendInt(append(b, name...), int64(n), 10)
}

// decisions are the last ones.
type decisions struct {
	mu   sync.Mutex // guards what follows
	ring []Decision // as long as there may be
	made uint64     // so far
}

func (l *decisions) add(d *Decision) {
	l.mu.Lock()
	l.ring[l.made%uint64(len(l.ring))] = *d
	l.made++
	l.mu.Unlock()
}

// Decisions returns the decisions for a request among the last ones, or all of these when requestID is empty, the oldest
// first.
func (b *Board) Decisions(requestID string) []Decision {
	l := &b.log
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Decision
	n := uint64(len(l.ring))
	for i := l.made - min(l.made, n); i < l.made; i++ {
		if d := &l.ring[i%n]; requestID == "" || d.RequestID == requestID {
			out = append(out, *d)
		}
	}
	return out
}
