package clients

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
)

const (
	// attackers are how many connections attack at once; each that is ended begins again after a moment.
	attackers  = 4
	attackTime = 5 * time.Second
	// longAttack is longer than the router gives a connection time to be read no more.
	longAttack = 8 * time.Second
	again      = 100 * time.Millisecond
	// framesPerSecond is the pace of a flood, over all attackers.
	framesPerSecond = 10_000
)

// frames is F78.
func frames() []trialOf {
	whole := func(c *h2, i int) error {
		id := uint32(2*i + 1)
		return errors.Join(c.request(id, false), c.f.WriteData(id, true, []byte(chatWith(`,"stream":true`))), c.f.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	reset := func(c *h2, i int) error {
		id := uint32(2*i + 1)
		return errors.Join(c.request(id, false), c.f.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	more := func(c *h2, i int) error {
		if i == 0 {
			return c.f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.block})
		}
		return c.f.WriteContinuation(1, false, c.field(i))
	}
	idle := func(c *h2, i int) error {
		return errors.Join(c.f.WriteSettings(), c.f.WritePing(false, [8]byte{byte(i)}))
	}
	return []trialOf{
		flooded("streams that are begun and reset, 10,000 a second", attack{step: reset, reads: true, closes: true}),
		flooded("chats that are sent whole and reset, 10,000 a second", attack{step: whole, reads: true, closes: true}),
		flooded("a head that goes on in CONTINUATION frames without an end", attack{step: more, reads: true, closes: true}),
		flooded("SETTINGS and PING, 10,000 a second, whose answers are read", attack{step: idle, reads: true}),
		flooded("SETTINGS and PING, as fast as can be, whose answers are not read", attack{step: idle, fast: true, closes: true, lasts: longAttack}),
		noWindow(),
	}
}

// attack is what one connection does.
type attack struct {
	// step sends the next frames.
	step func(c *h2, i int) error
	// reads: what comes is read. fast: there is no pace. closes: the router must end the connection.
	reads, fast, closes bool
	lasts               time.Duration // 0 is attackTime
}

// h2 is a connection whose frames are the caller's own.
type h2 struct {
	*conn
	f     *http2.Framer
	out   bytes.Buffer // what f has written
	block []byte       // the head of a chat
}

// dialH2 connects and sends what a client begins with.
func dialH2(ctx context.Context, address string, settings ...http2.Setting) (*h2, error) {
	c, err := dial(ctx, address, 0)
	if err != nil {
		return nil, err
	}
	h := &h2{conn: c}
	h.f = http2.NewFramer(&h.out, c.in)
	h.out.WriteString(http2.ClientPreface)
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "faults"}, {":path", "/v1/chat/completions"}, {"content-type", "application/json"}} {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}); err != nil {
			return nil, err
		}
	}
	h.block = b.Bytes()
	if err := errors.Join(h.f.WriteSettings(settings...), h.flush()); err != nil {
		_ = c.Close()
		return nil, err
	}
	return h, nil
}

// request begins a stream.
func (c *h2) request(id uint32, ends bool) error {
	return c.f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block, EndHeaders: true, EndStream: ends})
}

// field is one more field of a head.
func (c *h2) field(i int) []byte {
	var b bytes.Buffer
	_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: fmt.Sprintf("x-%d", i), Value: strings.Repeat("x", 64), Sensitive: true}) // a buffer takes all
	return b.Bytes()
}

// flush sends what was written.
func (c *h2) flush() error {
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, err := c.Write(c.out.Bytes())
	c.out.Reset()
	return err
}

// drain reads what comes until the connection ends, and returns why the other end ended it, if it said so.
func (c *h2) drain(ended chan<- http2.ErrCode) {
	why := http2.ErrCode(0)
	defer func() { ended <- why }()
	for {
		f, err := c.f.ReadFrame()
		if err != nil && !errors.As(err, new(http2.StreamError)) {
			return
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			why = g.ErrCode
		}
	}
}

// storm is an attack that goes on.
type storm struct {
	attack
	to string
	// connections that began, could not begin, and were ended by the router; steps are those of all.
	began, refused, closed atomic.Int64
	steps                  atomic.Int64
	open                   atomic.Int64 // nanoseconds that they lived, together
}

// pace is the steps a second of all attackers while their connections live.
func (s *storm) pace() float64 {
	return attackers * float64(s.steps.Load()) / time.Duration(s.open.Load()).Seconds()
}

// rage attacks with one connection after the other until ctx ends.
func (s *storm) rage(ctx context.Context) {
	for ctx.Err() == nil {
		c, err := dialH2(ctx, s.to)
		if err != nil { // the router has no time for it now
			s.refused.Add(1)
			_ = command.Pause(ctx, again) // its end ends the loop
			continue
		}
		s.began.Add(1)
		began := time.Now()
		s.one(ctx, c)
		s.open.Add(int64(time.Since(began)))
		_ = command.Pause(ctx, again) // its end ends the loop
	}
}

// one attacks with a connection until it is ended, or ctx ends.
func (s *storm) one(ctx context.Context, c *h2) {
	defer c.Close()                                                          //nolint:errcheck // it may have ended
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })() // ends reads and writes
	ended := make(chan http2.ErrCode, 1)
	if s.reads {
		go c.drain(ended)
	}
	const batch, most = 50, 1 << 29 // a stream's number has 31 bits
	tick := time.NewTicker(time.Second * batch * attackers / framesPerSecond)
	defer tick.Stop()
	for i := 0; i < most; i += batch {
		for k := range batch {
			if err := s.step(c, i+k); err != nil {
				return
			}
		}
		if err := c.flush(); err != nil {
			if ctx.Err() == nil {
				s.closed.Add(1)
			}
			break
		}
		s.steps.Add(batch)
		if s.fast {
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	if s.reads {
		_ = c.Close()
		<-ended
	}
}

// flooded is a trial of one attack.
func flooded(name string, a attack) trialOf {
	return trialOf{
		ID: "F78", Says: "HTTP/2: " + name, Times: 1, Takes: 7*time.Second + cmp.Or(a.lasts, attackTime), Spec: rig.Spec{Workers: 2, Plan: engine.Plan{Between: time.Millisecond}},
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			r.Foreign()
			before, err := holds(ctx, r.Routers[0])
			if err != nil {
				return nil, err
			}
			quiet, err := alone(ctx, r, mixed)
			if err != nil {
				return nil, err
			}
			s := &storm{attack: a, to: address(r.Routers[0])}
			during, err := beside(ctx, r, mixed, func() error { return s.all(ctx) })
			if err != nil {
				return nil, err
			}
			r.Routers[0].Client.Close()
			more, err := back(ctx, r.Routers[0], before, 5*time.Second)
			name := "F78 " + name
			closed := bench.Plain(name+", connections that the router ended", float64(s.closed.Load()), "")
			if a.closes {
				closed = bench.AtLeast(closed.Name, closed.Value, "", 1)
			}
			return append([]bench.Figure{closed,
				bench.Plain(name+", connections that could not begin", float64(s.refused.Load()), ""),
				bench.AtLeast(name+", steps of the attack while its connections live", s.pace(), "/s", framesPerSecond/2),
				bench.AtMost(name+", goroutines more than before", more.goroutines, "", 2),
			}, others(r, name, quiet, during, 1.5)...), err
		},
	}
}

// all attacks with all connections for the time.
func (s *storm) all(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.lasts, attackTime))
	defer cancel()
	var group sync.WaitGroup
	for range attackers {
		group.Go(func() { s.rage(ctx) })
	}
	group.Wait()
	if s.began.Load() == 0 {
		return errNoAttack
	}
	return nil
}

var errNoAttack = errors.New("no connection could begin an attack")

// noWindow is a client that asks and leaves no room for the answers.
func noWindow() trialOf {
	const streams, most = 50, 50 * time.Second
	const name = "F78 50 streams without a window"
	return trialOf{
		ID: "F78", Says: "HTTP/2: 50 streams on a connection that leaves no window for their answers", Times: 1, Takes: 45 * time.Second, Spec: rig.Spec{Workers: 2, Plan: engine.Plan{Between: 10 * time.Millisecond}},
		Run: func(ctx context.Context, r *rig.Rig, _ int) ([]bench.Figure, error) {
			r.Foreign()
			quiet, err := alone(ctx, r, mixed)
			if err != nil {
				return nil, err
			}
			c, err := dialH2(ctx, address(r.Routers[0]), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			if err != nil {
				return nil, err
			}
			defer c.Close() //nolint:errcheck // it may have ended
			ids := map[string]bool{}
			for i := range streams {
				id := client.NewID()
				ids[id] = true
				if err := c.endless(uint32(2*i+1), id); err != nil {
					return nil, err
				}
			}
			go func() { c.drain(make(chan http2.ErrCode, 1)) }()
			var took time.Duration
			during, err := beside(ctx, r, mixed, func() error {
				took, err = idleWithin(ctx, r, ids, most)
				return err
			})
			if err != nil {
				return nil, err
			}
			return append([]bench.Figure{
				bench.AtMost(name+", time until no engine works for one: 30 s after the buffers are full", took.Seconds(), "s", 45),
			}, others(r, name, quiet, during, 1.5)...), nil
		},
	}
}

// endless asks for an answer that does not end.
func (c *h2) endless(stream uint32, id string) error {
	body := fmt.Sprintf(`{"model":%q,"stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"%s%s "}]}`, rig.ModelName, 1<<19, engine.Mark, id)
	return errors.Join(c.request(stream, false), c.f.WriteData(stream, true, []byte(body)), c.flush())
}
