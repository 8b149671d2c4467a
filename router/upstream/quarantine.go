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
	// deadly is how many deaths of different instances it takes.
	deadly = 2
	// quarantineTime is how long such a request is refused after the last of them, and how long one death counts.
	quarantineTime = 10 * time.Minute
	// proofTime is how long after its end a lost call may turn out to have been a death. Heartbeats tell within 3.5 s by
	// default. Until then it counts as one.
	proofTime = 15 * time.Second
	// maxSuspicions is how many requests are remembered, about 100 bytes each.
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
)

// quarantine remembers which requests were at work on workers that died, by their hash. A broken connection alone proves
// nothing: only the verdict on the instance does. An answer of the same request that comes to its finish proves that it is
// none that kills. It is pure; whoever has it guards it.
type quarantine struct {
	requests map[uint64]*suspicion // at most maxSuspicions
}

// suspicion is what one request did.
type suspicion struct {
	deaths []death // of different instances, at most deadly, oldest first
	until  time.Time
	killed []string // the pods for whose deaths it is refused until then
}

// death is one lost instance.
type death struct {
	pod, instance string
	at            time.Time
	proven        bool
}

// counts reports whether d speaks against its request at now.
func (d death) counts(now time.Time) bool {
	if d.proven {
		return now.Before(d.at.Add(quarantineTime))
	}
	return now.Before(d.at.Add(proofTime))
}

// lost says that an instance was lost with the request at now, and what is known about it already.
func (q *quarantine) lost(hash uint64, pod, instance string, v verdict, now time.Time) {
	if v == lives {
		return
	}
	s := q.requests[hash]
	if s == nil {
		q.makeRoom(now)
		s = &suspicion{}
		q.requests[hash] = s
	}
	s.deaths = slices.DeleteFunc(s.deaths, func(d death) bool { return !d.counts(now) })
	if i := slices.IndexFunc(s.deaths, func(d death) bool { return d.pod == pod && d.instance == instance }); i >= 0 {
		s.deaths[i].proven = s.deaths[i].proven || v == died
	} else {
		s.deaths = append(s.deaths, death{pod, instance, now, v == died})
		s.deaths = s.deaths[max(len(s.deaths)-deadly, 0):]
	}
	s.judge()
}

// judge begins the time of refusal when there are enough deaths that are proven.
func (s *suspicion) judge() {
	var last time.Time
	n := 0
	for _, d := range s.deaths {
		if d.proven {
			n++
			last = d.at
		}
	}
	if n < deadly {
		return
	}
	s.until, s.killed = last.Add(quarantineTime), nil
	for _, d := range s.deaths {
		s.killed = append(s.killed, d.pod)
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
			return !d.counts(now) || !d.proven && know(d.pod, d.instance) == lives
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
	n := 0
	for _, d := range s.deaths {
		pods = append(pods, d.pod)
		if !d.counts(now) {
			continue
		}
		n++
		if end := d.at.Add(proofTime); !d.proven && (until.IsZero() || end.Before(until)) {
			until = end
		}
	}
	if now.Before(s.until) {
		return s.killed, s.until, true
	}
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
		if !now.Before(s.until) && !slices.ContainsFunc(s.deaths, func(d death) bool { return d.counts(now) }) {
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
