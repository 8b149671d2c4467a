package heartbeat

import (
	"math"
	"slices"
	"time"
)

// anomalies compares the workers of one model: a point is odd by its distance from the worker's own window, or from the
// median of its peers' last points, which a few odd ones can't move. Where half of the others shift as a worker does, that
// is the load, and no anomaly of its past. It isn't safe for concurrent use. Times may not go backwards. It holds about
// 1.5 KiB for each worker.
type anomalies struct {
	workers map[string]*record // by pod
	crowds  [signalCount]crowd

	values, spreads []float64 // memory for the crowds' figures
	ages            []time.Duration
}

// record is what is known of one instance.
type record struct {
	instance string
	series   [signalCount]series
}

// crowd is the figures of all workers' last points of one signal.
type crowd struct {
	at             time.Time // when they were computed; zero before
	n              int
	middle, spread float64
	heard          time.Time // half of the others, or more, have a point since then
	high, low      int       // how many points are odd for their own windows
}

func newAnomalies() *anomalies { return &anomalies{workers: map[string]*record{}} }

// stand takes a worker's instance. Another one voids all that is known, and ends its alarms.
func (a *anomalies) stand(pod, instance string) []Anomaly {
	if r := a.workers[pod]; r != nil && r.instance == instance {
		return nil
	}
	ended := a.forget(pod)
	a.workers[pod] = &record{instance: instance}
	return ended
}

// forget drops all that is known of pod, and ends its alarms.
func (a *anomalies) forget(pod string) []Anomaly {
	r := a.workers[pod]
	if r == nil {
		return nil
	}
	delete(a.workers, pod)
	var ended []Anomaly
	for s := range signalCount {
		ended = append(ended, r.silence(pod, s)...)
	}
	return ended
}

// tick ends the alarms of pod whose last point is too old.
func (a *anomalies) tick(now time.Time, pod string) []Anomaly {
	r := a.workers[pod]
	if r == nil {
		return nil
	}
	var ended []Anomaly
	for s := range signalCount {
		if now.Sub(r.series[s].at) > staleAfter {
			ended = append(ended, r.silence(pod, s)...)
		}
	}
	return ended
}

// silence ends the alarms of one signal.
func (r *record) silence(pod string, s Signal) []Anomaly {
	var ended []Anomaly
	q := &r.series[s]
	for against := range againstCount {
		if q.alarms[against].on {
			ended = append(ended, Anomaly{Pod: pod, Instance: r.instance, Signal: s, Against: against, Value: q.last})
		}
		q.alarms[against] = alarm{}
	}
	return ended
}

// word is the first signal that has an alarm, the worst first; empty without any.
func (a *anomalies) word(pod string) string {
	r := a.workers[pod]
	if r == nil {
		return ""
	}
	for _, s := range [...]Signal{FailureShare, FirstToken, BetweenTokens} {
		if q := &r.series[s]; q.alarms[Past].on || q.alarms[Peers].on {
			return s.String()
		}
	}
	return ""
}

// point takes a point of a worker that stands here, and returns the alarms that change.
func (a *anomalies) point(now time.Time, pod string, s Signal, x float64) []Anomaly {
	r := a.workers[pod]
	if r == nil {
		return nil
	}
	q := &r.series[s]
	own, mean, ok := q.take(now, s, x)
	if !ok {
		return nil
	}
	c := a.crowd(now, s)
	var changes []Anomaly
	judge := func(against Against, z, usual float64, heard time.Time) {
		if q.alarms[against].take(now, z, heard) {
			changes = append(changes, Anomaly{Pod: pod, Instance: r.instance, Signal: s, Against: against,
				On: q.alarms[against].on, Value: x, Usual: usual, Z: z})
		}
	}
	switch others, alike := c.others(q); {
	case others == 0:
		judge(Past, own, mean, now)
	case q.shift == 0 || 2*alike < others:
		judge(Past, own, mean, c.heard)
	default:
		q.alarms[Past].interrupt()
	}
	if c.n < minPeers {
		judge(Peers, 0, x, now)
	} else {
		judge(Peers, distance(s, x, c.middle, c.spread), c.middle, c.heard)
	}
	return changes
}

// others is how many workers beside q's the figures are of, and how many of these have shifted as q has.
func (c *crowd) others(q *series) (others, alike int) {
	others = c.n
	switch q.shift {
	case 1:
		alike = c.high
	case -1:
		alike = c.low
	}
	if q.counted {
		others--
		if q.told != 0 && q.told == q.shift {
			alike--
		}
	}
	return others, alike
}

// crowd is the present figures of a signal, at most crowdAge old. The spread of peers is that of their medians or of a
// worker's own points, what is more: three workers are too few to tell from each other's points how much points vary.
func (a *anomalies) crowd(now time.Time, s Signal) *crowd {
	c := &a.crowds[s]
	if !c.at.IsZero() && now.Sub(c.at) < crowdAge {
		return c
	}
	*c = crowd{at: now}
	a.values, a.spreads, a.ages = a.values[:0], a.spreads[:0], a.ages[:0]
	for _, r := range a.workers {
		q := &r.series[s]
		q.counted, q.told = q.n >= minPoints && now.Sub(q.at) <= staleAfter, q.shift
		if !q.counted {
			continue
		}
		a.values, a.spreads, a.ages = append(a.values, q.last), append(a.spreads, q.spread), append(a.ages, now.Sub(q.at))
		switch q.shift {
		case 1:
			c.high++
		case -1:
			c.low++
		}
	}
	if c.n = len(a.values); c.n == 0 {
		return c
	}
	slices.Sort(a.ages)
	c.heard = now.Add(-a.ages[c.n/2])
	c.middle = median(a.values)
	for i, v := range a.values {
		a.values[i] = math.Abs(v - c.middle)
	}
	c.spread = floored(s, c.middle, max(madToSigma*median(a.values), median(a.spreads)))
	return c
}

// median sorts v, which isn't empty, and returns its middle.
func median(v []float64) float64 {
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
