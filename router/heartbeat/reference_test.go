package heartbeat

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// input is one event of a random history.
type input struct {
	at time.Duration
	// r: good report, u: one of a model that isn't loaded, x: one of another model, d: one that drains, e: one without an
	// instance, b: broken, t: tick, p: the pod terminates, c: drop and admit change.
	kind        byte
	instance    string
	drop, admit int
}

// reportsOf are the reports of each kind and instance; a detector doesn't change them.
var reportsOf = func() map[byte]map[string]*workerv1.Report {
	out := map[byte]map[string]*workerv1.Report{}
	for _, kind := range "ruxde" {
		out[byte(kind)] = map[string]*workerv1.Report{}
		for _, id := range []string{"a", "b"} {
			r := good(id)
			switch kind {
			case 'u':
				r.ModelLoaded = false
			case 'x':
				r.ModelUid = "uid-2"
			case 'd':
				r.Draining = true
			case 'e':
				r.InstanceId = ""
			}
			out[byte(kind)][id] = r
		}
	}
	return out
}()

// apply feeds e to d.
func (e input) apply(d *Detector) {
	now := epoch.Add(e.at)
	switch e.kind {
	case 'b':
		d.Broken(now, "gone")
	case 't':
		d.Tick(now)
	case 'p':
		d.Terminate()
	case 'c':
		c := d.config
		c.FailuresToDrop, c.SuccessesToAdmit = e.drop, e.admit
		d.Configure(c)
	default:
		d.Report(now, reportsOf[e.kind][e.instance])
	}
}

// letter is something that counts: S, F, U for an unfit report, D for one that drains, R for another instance, P for a pod
// that goes, C for other numbers, and a dot for a report that is no success, which ends draining and nothing else.
type letter struct {
	kind        byte
	drop, admit int
}

// spell writes the letters of a whole history.
func spell(c Config, history []input, word []letter) []letter {
	instance, heard := "", time.Duration(0)
	lastS, lastF := time.Duration(-1), time.Duration(-1)
	add := func(kind byte) { word = append(word, letter{kind: kind}) }
	failure := func(at time.Duration) {
		if lastF < 0 || at >= lastF+c.Interval {
			add('F')
			lastF = at
		}
	}
	for _, e := range history {
		switch e.kind {
		case 'b':
			failure(e.at)
			continue
		case 't':
			if e.at >= heard+c.Interval+c.Timeout {
				failure(e.at)
			}
			continue
		case 'p':
			add('P')
			continue
		case 'c':
			word = append(word, letter{'C', e.drop, e.admit})
			continue
		case 'e':
			e.instance = ""
		}
		heard = e.at
		if e.instance != instance {
			add('R')
			instance, lastS, lastF = e.instance, -1, -1
		}
		switch {
		case e.kind == 'u', e.kind == 'x', e.kind == 'e':
			add('U')
		case e.kind == 'd':
			add('D')
		case lastS < 0 || e.at >= lastS+c.Interval*9/10:
			add('S')
			lastS = e.at
		default:
			add('.')
		}
	}
	return word
}

// readWord is the verdict on a word.
func readWord(drop, admit int, word []letter) State {
	up, draining, going := false, false, false
	s, f := 0, 0
	for _, w := range word {
		switch w.kind {
		case 'S':
			s, f, draining = s+1, 0, false
			up = up || s >= admit
		case 'F':
			s, f = 0, min(f+1, drop) // a failure beyond those that drop isn't counted
		case 'U':
			up, s, f, draining = false, 0, 0, false
		case 'R':
			up, s, f = false, 0, 0
		case 'D':
			up, s, f, draining = false, 0, 0, true
		case 'P':
			going = true
		case 'C':
			drop, admit = w.drop, w.admit
		case '.':
			draining = false
		}
		if f >= drop {
			up, s = false, 0
		}
	}
	switch {
	case f >= drop:
		return Lost
	case going, draining:
		return Draining
	case up:
		return Up
	}
	return Down
}

// drawHistory makes numbers and a history of numbers below n.
func drawHistory(intn func(n int) int, events int, history []input) (Config, []input) {
	steps := [...]time.Duration{0, 1, 100, 400, 500, 899, 900, 950, 1000, 1050, 1500, 2500}
	c := Config{
		Interval: time.Second, Timeout: time.Duration(intn(11)) * 100 * time.Millisecond,
		FailuresToDrop: 1 + intn(4), SuccessesToAdmit: 1 + intn(4),
	}
	at := time.Duration(0)
	for range events {
		at += steps[intn(len(steps))] * time.Millisecond
		e := input{at: at, kind: "rrrrrrrrrrrrrrrrrrrrrrbbbbbbbbbttttttttttttuuudddxecp"[intn(53)], instance: "a"}
		if intn(12) == 0 {
			e.instance = "b"
		}
		if e.kind == 'c' {
			e.drop, e.admit = 1+intn(4), 1+intn(4)
		}
		history = append(history, e)
	}
	return c, history
}

// differ plays a history and describes how the detector's last verdict differs from the reference's. The start of a history
// is a history, too.
func differ(c Config, history []input, word []letter) string {
	d := NewDetector(c, expected, epoch)
	for _, e := range history {
		e.apply(d)
	}
	if got, want := d.State(), readWord(c.FailuresToDrop, c.SuccessesToAdmit, spell(c, history, word)); got != want {
		return fmt.Sprintf("config %+v\nhistory %+v\nthe detector says %s, the reference %s", c, history, got, want)
	}
	return ""
}

func TestTheDetectorAgreesWithAnIndependentReferenceOnAMillionHistories(t *testing.T) {
	const histories = 1_000_000
	shards := runtime.GOMAXPROCS(0)
	var all sync.WaitGroup
	found := make(chan string, shards)
	for shard := range shards {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(shard)))
			history, word := make([]input, 0, 64), make([]letter, 0, 128)
			for i := shard; i < histories; i += shards {
				var c Config
				c, history = drawHistory(rng.IntN, 1+rng.IntN(40), history[:0])
				if diff := differ(c, history, word[:0]); diff != "" {
					found <- diff
					return
				}
			}
		})
	}
	all.Wait()
	close(found)
	for diff := range found {
		t.Error(diff)
	}
}

func TestTheDetectorAgreesWithAnIndependentReferenceOnShrinkableHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		intn := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
		c, history := drawHistory(intn, 1+intn(40), nil)
		if diff := differ(c, history, nil); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzHeartbeat(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		intn := func(n int) int {
			if len(data) == 0 {
				return 0
			}
			v := int(data[0]) % n
			data = data[1:]
			return v
		}
		c, history := drawHistory(intn, min(len(data)/3, 100), nil)
		for i := range history {
			if diff := differ(c, history[:i+1], nil); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}
