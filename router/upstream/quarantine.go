package upstream

import (
	"hash/maphash"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// A request that was at work on two workers when these died is not run for a while.
const (
	// deadly is how many incidents it takes. Instances that died while the request was at work on all of them are one: what
	// takes many workers at the same time, such as the loss of a node, finds a popular request on each.
	deadly = 2
	// maxDeaths is how many deaths are remembered of one request.
	maxDeaths = 8
	// quarantineTime is how long such a request is refused after the last of them, and how long one death counts.
	quarantineTime = 10 * time.Minute
	// proofTime is how long after its end a lost call may turn out to have been a death. Heartbeats tell within 3.5 s by
	// default. Until then it counts as one.
	proofTime = 15 * time.Second
	// maxSuspicions is how many requests are remembered, 100 to 900 bytes each.
	maxSuspicions = 4096
)

// verdict is what is known of an instance that was lost at work.
type verdict int

const (
	// undecided: it is as it was, as far as anybody knows.
	undecided verdict = iota
	// died: its heartbeats have ended, or another instance has taken its place.
	died
	// lives: it drains or was deleted, so that nothing is the request's doing.
	lives
	// answered: the worker has said that its engine failed. That is no death, unless its instance turns out to be another.
	answered
)

// quarantine remembers which requests were at work on workers that died, by their hash. A broken connection alone proves
// nothing: only the verdict on the instance does. An answer of the same request that comes to its finish proves that it is
// none that kills. It is pure; whoever has it guards it.
type quarantine struct {
	requests map[uint64]*suspicion // at most maxSuspicions
}

// suspicion is what one request did.
type suspicion struct {
	deaths []death // of different instances, at most maxDeaths, oldest first
	until  time.Time
	killed []string // the pods for whose deaths it is refused until then
}

// death is one lost instance.
type death struct {
	pod, instance string
	began, at     time.Time // when the request came there, and when it was lost
	proven        bool
	answered      bool // by an error of its own
}

// matters reports whether d speaks against its request at now, or may yet turn out to.
func (d death) matters(now time.Time) bool {
	if d.proven {
		return now.Before(d.at.Add(quarantineTime))
	}
	return now.Before(d.at.Add(proofTime))
}

// counts reports whether d speaks against its request at now.
func (d death) counts(now time.Time) bool { return d.matters(now) && (d.proven || !d.answered) }

// incidents is how many times the request has met death, of the deaths that are counted, oldest first: one that it came to
// after it was known to be lost elsewhere is another incident.
func (s *suspicion) incidents(counted func(death) bool) (n int, last time.Time) {
	for _, d := range s.deaths {
		if counted(d) && (n == 0 || !d.began.Before(last)) {
			n, last = n+1, d.at
		}
	}
	return n, last
}

// lost says that an instance was lost at now with the request, which was there since began, and what is known about it
// already.
func (q *quarantine) lost(hash uint64, pod, instance string, v verdict, began, now time.Time) {
	if v == lives {
		return
	}
	s := q.requests[hash]
	if s == nil {
		q.makeRoom(now)
		s = &suspicion{}
		q.requests[hash] = s
	}
	s.deaths = slices.DeleteFunc(s.deaths, func(d death) bool { return !d.matters(now) })
	if i := slices.IndexFunc(s.deaths, func(d death) bool { return d.pod == pod && d.instance == instance }); i >= 0 {
		s.deaths[i].proven = s.deaths[i].proven || v == died
		s.deaths[i].answered = s.deaths[i].answered && v == answered
	} else {
		if len(s.deaths) == maxDeaths { // the oldest and the latest tell incidents apart
			s.deaths = slices.Delete(s.deaths, 1, 2)
		}
		s.deaths = append(s.deaths, death{pod: pod, instance: instance, began: began, at: now, proven: v == died, answered: v == answered})
	}
	s.judge()
}

// judge begins the time of refusal when there are enough deaths that are proven.
func (s *suspicion) judge() {
	proven := func(d death) bool { return d.proven }
	n, last := s.incidents(proven)
	if n < deadly {
		return
	}
	s.until, s.killed = last.Add(quarantineTime), nil
	for _, d := range s.deaths {
		if proven(d) {
			s.killed = append(s.killed, d.pod)
		}
	}
}

// revoke drops the deaths of instances that are heard again: they were cut off, and lived. What followed from them is void.
func (s *suspicion) revoke(know func(pod, instance string) verdict) {
	before := len(s.deaths)
	s.deaths = slices.DeleteFunc(s.deaths, func(d death) bool { return d.proven && know(d.pod, d.instance) == undecided })
	if len(s.deaths) < before {
		s.until, s.killed = time.Time{}, nil
	}
}

// settle takes what is known now of the instances that were lost, and forgets what speaks against nobody any more.
func (q *quarantine) settle(now time.Time, know func(pod, instance string) verdict) {
	for hash, s := range q.requests {
		s.revoke(know)
		s.deaths = slices.DeleteFunc(s.deaths, func(d death) bool {
			return !d.matters(now) || !d.proven && know(d.pod, d.instance) == lives
		})
		for i := range s.deaths {
			d := &s.deaths[i]
			d.proven = d.proven || know(d.pod, d.instance) == died
		}
		s.judge()
		if len(s.deaths) == 0 && !now.Before(s.until) {
			delete(q.requests, hash)
		}
	}
}

// refuses returns the pods that a request has killed, and until when it is refused for that; false if it may run. While
// it is not known yet whether one of them has died, it is refused for so long.
func (q *quarantine) refuses(hash uint64, now time.Time) (pods []string, until time.Time, yes bool) {
	s := q.requests[hash]
	if s == nil {
		return nil, until, false
	}
	for _, d := range s.deaths {
		if !d.counts(now) {
			continue
		}
		pods = append(pods, d.pod)
		if end := d.at.Add(proofTime); !d.proven && (until.IsZero() || end.Before(until)) {
			until = end
		}
	}
	if now.Before(s.until) {
		return s.killed, s.until, true
	}
	n, _ := s.incidents(func(d death) bool { return d.counts(now) })
	return pods, until, n >= deadly
}

// acquit forgets what speaks against a request that came to its finish.
func (q *quarantine) acquit(hash uint64) { delete(q.requests, hash) }

// makeRoom keeps the table within its bound: what no longer counts goes first, then an eighth of all, those whose last death
// is the oldest.
func (q *quarantine) makeRoom(now time.Time) {
	if len(q.requests) < maxSuspicions {
		return
	}
	type known struct {
		hash uint64
		at   time.Time
	}
	var all []known
	for hash, s := range q.requests {
		if !now.Before(s.until) && !slices.ContainsFunc(s.deaths, func(d death) bool { return d.matters(now) }) {
			delete(q.requests, hash)
			continue
		}
		all = append(all, known{hash, s.last()})
	}
	if len(all) < maxSuspicions {
		return
	}
	slices.SortFunc(all, func(a, b known) int { return a.at.Compare(b.at) })
	for _, k := range all[:maxSuspicions/8] {
		delete(q.requests, k.hash)
	}
}

// last is when the latest death was.
func (s *suspicion) last() time.Time {
	if n := len(s.deaths); n > 0 {
		return s.deaths[n-1].at
	}
	return s.until.Add(-quarantineTime)
}

// fingerprint is the hash that a request for a model is known by: by what it makes a worker compute, not by its ids, nor
// by its priority, which is its client's. Seeds are random, so that nobody can make two requests that share one.
func fingerprint(seed maphash.Seed, modelUID string, request proto.Message) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(modelUID)
	_ = h.WriteByte(0)
	if r, ok := request.(*workerv1.GenerateRequest); ok {
		work := shallow(r)
		work.ExpectedInstanceId, work.ExpectedRevision, work.ExpectedModelUid = "", "", ""
		work.RequestId, work.AttemptId, work.Priority = "", "", 0
		request = work
	}
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(request) // a message that can't be written is never sent
	_, _ = h.Write(b)
	return h.Sum64()
}
