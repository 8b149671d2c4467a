package upstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ringfleet/ringfleet/router/placement"
)

const (
	// mostTries is how many workers are asked for the beginning of an answer, and how many for its going on.
	mostTries = 2
	// mostLost is how many workers may be lost, or fail, at work on a request. One that lost two is not tried on a third.
	mostLost = 2
	// mostWithout is how many workers are asked that turn out to lack what the request needs: its adapter, or the way to go
	// on with its answer. They do no work for it, and while a rollout brings an adapter only some workers have it.
	mostWithout = 8
)

// search is a request's way over the workers: whom it has asked, and what came of it.
type search struct {
	place   placement.Request // its Exclude names those that were asked, too
	message proto.Message     // what is to be run, without ids
	first   ticket            // for the first try; nil afterwards
	// Of an answer that goes on: that it does, the only revision whose tokens are the same, how many it has, and whether the
	// worker was told which.
	resumes  bool
	revision string
	made     int
	named    bool

	asked   int     // workers that count as tried
	tries   int     // of them, those since it last moved
	without int     // asked besides; they lack what it needs
	lost    int     // lost or failed at work
	from    string  // the last one that was asked
	latest  failure // what that one ended with
	held    failure // what is told when nobody else is asked
	lacked  failure // the same, of those that lack what it needs
	extra   bool    // the next try is paid for

	hash   uint64 // once hashed
	hashed bool
}

func newSearch(place *placement.Request, first *placement.Ticket, message proto.Message, lost int) search {
	q := search{place: *place, message: message, lost: lost}
	q.place.Exclude = slices.Clone(place.Exclude)
	if first != nil {
		q.first = first
	}
	return q
}

// told is what the search ends with.
func (q *search) told() error {
	if q.held.err != nil {
		return q.held.err
	}
	return q.lacked.err
}

// nobody is what the search ends with where the placer has nobody else.
func (q *search) nobody(err error) error {
	var on *Error
	switch {
	case q.told() == nil, errors.Is(q.held.err, ErrRefused):
		return err // nobody did any work: the placer knows best why
	case q.resumes && errors.As(q.held.err, &on):
		on.Stays = "there is no other worker that can go on with it"
	case q.lost < mostLost && errors.As(q.held.err, &on):
		on.Alone = errors.Is(on.Kind, ErrLost)
	}
	return q.told()
}

// seek calls try with a place at one worker after the other until one takes the request or no further one may be asked.
// Try ends the ticket of a call that fails, and returns the call's seat, with extra in it.
func (c *Client) seek(q *search, try func(t ticket, extra bool) (*seat, failure)) error {
	defer c.repay(q)
	if err := c.quarantined(q); err != nil {
		if q.first != nil {
			q.first.Ended(placement.Result{}, c.options.Clock.Now())
		}
		return err
	}
	for q.tries < mostTries && q.lost < mostLost && q.without < mostWithout {
		t, err := c.take(q)
		if err != nil {
			return q.nobody(err)
		}
		extra := q.extra
		q.extra = false
		s, f := try(t, extra)
		if f.err == nil {
			return nil
		}
		if !c.account(q, s, f) {
			break
		}
	}
	return q.told()
}

// take takes a place at the next worker.
func (c *Client) take(q *search) (ticket, error) {
	for {
		now := c.options.Clock.Now()
		t := q.first
		q.first = nil
		if t == nil {
			var err error
			if t, err = c.place(&q.place, now); err != nil {
				return nil, err
			}
		}
		w := t.Worker()
		q.place.Exclude = append(q.place.Exclude, placement.Process{Pod: w.Pod, Instance: w.Instance})
		if q.revision != "" && w.Revision != q.revision {
			t.Ended(placement.Result{}, now)
			if q.without++; q.without == mostWithout {
				return nil, placement.ErrNoWorker
			}
			continue
		}
		q.asked++
		q.tries++
		if q.from != "" {
			c.retried(Retry{ModelUID: q.place.ModelUID, RequestID: q.place.RequestID, From: q.from, To: w.Pod, Why: q.latest.kind(), Tokens: q.made})
		}
		q.from = w.Pod
		return t, nil
	}
}

// account books how a call ended, and reports whether another worker may be asked. What is told in the end is how the last
// call ended that did any work, so that a client whose answer has begun is not told of a full queue.
func (c *Client) account(q *search, s *seat, f failure) bool {
	c.report(s, f.outcome, f.broken)
	if f.suspect {
		c.suspect(s.worker)
	}
	q.latest = f
	if f.without {
		q.asked--
		q.tries--
		q.without++
		q.lacked = f
		return true
	}
	if !q.resumes || !f.idle {
		q.held = f
	}
	c.bury(q, s, f)
	var on *Error
	if errors.As(f.err, &on) {
		on.Lost = q.lost
	}
	if f.again == paid {
		c.mu.Lock()
		q.extra = c.budget.spend()
		c.mu.Unlock()
		return q.extra
	}
	return f.again == always
}

// repay gives back what was paid for a try that is not made.
func (c *Client) repay(q *search) {
	if !q.extra {
		return
	}
	q.extra = false
	c.mu.Lock()
	c.budget.refund()
	c.mu.Unlock()
}

// bury counts a worker that was lost at work, and remembers that it may have died of the request. One that drains ends its
// calls because it was told to.
func (c *Client) bury(q *search, s *seat, f failure) {
	if f.gone == lives || s.peer == nil {
		return
	}
	c.mu.Lock()
	drains := s.peer.draining
	c.mu.Unlock()
	if drains {
		return
	}
	q.lost++
	hash, now := c.hash(q), c.options.Clock.Now()
	c.mu.Lock()
	v := f.gone
	if known := c.verdict(s.worker.Pod, s.worker.Instance); v == undecided || v == answered && known != undecided {
		v = known
	}
	c.suspects.lost(hash, s.worker.Pod, s.worker.Instance, v, s.began, now)
	c.mu.Unlock()
}

// hash is what q is known by. It costs a pass over the request, so it is made only where something is suspected.
func (c *Client) hash(q *search) uint64 {
	if !q.hashed {
		q.hash, q.hashed = fingerprint(c.seed, q.place.ModelUID, q.message), true
	}
	return q.hash
}

// suspecting reports whether anything is remembered of any request.
func (c *Client) suspecting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.suspects.requests) > 0
}

// acquit forgets what is remembered of a request that came to its finish.
func (c *Client) acquit(q *search) {
	if !c.suspecting() {
		return
	}
	hash := c.hash(q)
	c.mu.Lock()
	c.suspects.acquit(hash)
	c.mu.Unlock()
}

// quarantined refuses a request of which workers have died, before anybody is asked.
func (c *Client) quarantined(q *search) error {
	switch {
	case q.asked > 0:
		return nil
	case q.lost >= mostLost:
		return &Error{Kind: ErrLost, Detail: "two workers were lost with it", Lost: q.lost}
	case !c.suspecting():
		return nil
	}
	hash, now := c.hash(q), c.options.Clock.Now()
	c.mu.Lock()
	pods, until, yes := c.suspects.refuses(hash, now)
	c.mu.Unlock()
	if !yes || len(pods) == 0 {
		return nil
	}
	if c.options.Quarantined != nil {
		c.options.Quarantined(Quarantine{ModelUID: q.place.ModelUID, RequestID: q.place.RequestID, Pods: pods, Until: until})
	}
	return &Error{Kind: ErrQuarantined, Worker: pods[len(pods)-1], Detail: fmt.Sprintf(
		"%s; it is refused for %s more", strings.Join(pods, ", "), until.Sub(now).Round(time.Second))}
}
