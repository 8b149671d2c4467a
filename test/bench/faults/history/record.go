// Package history holds what clients, engines and routers saw during a fault, and decides whether it hangs together: nothing
// lost, nothing told twice, nothing charged that did not come. It asks nobody and reads no clock; who records is the caller's
// affair. Prompts are not in it.
package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Event is what a client got at one moment.
type Event struct {
	At     time.Time `json:"at"`
	Choice int       `json:"choice,omitempty"`
	Text   string    `json:"text,omitempty"`
	// Finish ends a choice, Error the whole answer, Done is the stream's last word.
	Finish string `json:"finish,omitempty"`
	Error  string `json:"error,omitempty"`
	Done   bool   `json:"done,omitempty"`
}

// ends reports whether nothing may follow e.
func (e Event) ends() bool { return e.Done || e.Error != "" }

// Client is one request as its client saw it.
type Client struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant,omitempty"`
	Router string `json:"router"`
	Model  string `json:"model"`
	Worker string `json:"worker,omitempty"` // that began the answer
	Stream bool   `json:"stream,omitempty"`
	// Choices and Words are how many were asked for; Words is 0 where the engine is no scripted one, and its text its own.
	Choices int `json:"choices"`
	Words   int `json:"words,omitempty"`

	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// Status is 0 where no response came.
	Status     int     `json:"status"`
	Events     []Event `json:"events,omitempty"`
	Completion int     `json:"completion,omitempty"` // tokens, as the usage says; -1: it was not told
	RetryAfter int     `json:"retryAfter,omitempty"` // seconds
	Code       string  `json:"code,omitempty"`       // of an error, in the body or in an event
	Broken     string  `json:"broken,omitempty"`     // how the connection ended before the answer did
	// Gone: the client itself went away.
	Gone bool `json:"gone,omitempty"`
}

// Done reports whether the stream said that it was complete, or the body was.
func (c *Client) Done() bool {
	if !c.Stream {
		return c.Status == 200 && c.Code == "" && c.Broken == "" && !c.Gone
	}
	return slices.ContainsFunc(c.Events, func(e Event) bool { return e.Done })
}

// Text is what came of a choice.
func (c *Client) Text(choice int) string {
	var b strings.Builder
	for _, e := range c.Events {
		if e.Choice == choice {
			b.WriteString(e.Text)
		}
	}
	return b.String()
}

// Finish is why a choice ended, or "".
func (c *Client) Finish(choice int) string {
	for _, e := range c.Events {
		if e.Choice == choice && e.Finish != "" {
			return e.Finish
		}
	}
	return ""
}

// Tokens is how many words came, over all choices.
func (c *Client) Tokens() int {
	n := 0
	for i := range max(c.Choices, 1) {
		n += len(strings.Fields(c.Text(i)))
	}
	return n
}

// First is the time to the first text; 0 where there was none.
func (c *Client) First() time.Duration {
	for _, e := range c.Events {
		if e.Text != "" {
			return e.At.Sub(c.Start)
		}
	}
	return 0
}

// Pause is the longest time between two texts.
func (c *Client) Pause() time.Duration {
	longest, last := time.Duration(0), time.Time{}
	for _, e := range c.Events {
		if e.Text == "" {
			continue
		}
		if !last.IsZero() {
			longest = max(longest, e.At.Sub(last))
		}
		last = e.At
	}
	return longest
}

// Outcome is how a request ended, for its client.
type Outcome string

// The outcomes.
const (
	Completed Outcome = "completed"
	Failed    Outcome = "failed"
	Cancelled Outcome = "cancelled"
	Open      Outcome = "open" // it has not ended
)

// Outcome says how c ended.
func (c *Client) Outcome() Outcome {
	switch {
	case c.End.IsZero():
		return Open
	case c.Done():
		return Completed
	case c.Gone:
		return Cancelled
	}
	return Failed
}

// Attempt is one request as an engine saw it.
type Attempt struct {
	ID       string    `json:"id"` // of the client's request
	Pod      string    `json:"pod"`
	Instance string    `json:"instance,omitempty"`
	Start    time.Time `json:"start"`
	End      time.Time `json:"end,omitzero"` // zero: it was still at it, or died at it
	From     int       `json:"from,omitempty"`
	Sent     int       `json:"sent"` // words, from From on
	Aborted  bool      `json:"aborted,omitempty"`
}

// Standing is what became of a worker at one moment.
type Standing struct {
	Pod string    `json:"pod"`
	At  time.Time `json:"at"`
	// Serves: it has loaded its model, and does not drain.
	Serves bool `json:"serves"`
}

// Router is what a router says when all is quiet.
type Router struct {
	Name string `json:"name"`
	// Whole: this process has served every request that clients sent it; else its counts are those of its last process.
	Whole bool `json:"whole"`
	// Alone: nobody but recorded clients has asked it.
	Alone        bool               `json:"alone"`
	Outcomes     map[string]float64 `json:"outcomes"`
	InFlight     float64            `json:"inFlight"`
	Queued       float64            `json:"queued"`
	Held         float64            `json:"held"`
	OnWorkers    int                `json:"onWorkers"` // requests in flight, worker by worker
	AnswerTokens float64            `json:"answerTokens"`
	// Members are the ring's, by model; Ring its version; Owners who has a key.
	Members    map[string][]string          `json:"members"`
	Ring       map[string]uint64            `json:"ring"`
	Owners     map[string]map[string]string `json:"owners,omitempty"`
	Goroutines int                          `json:"goroutines"`
	Files      int                          `json:"files"`
	// Goroutines and files before the fault; 0: not known, as the process is another one.
	GoroutinesBefore int `json:"goroutinesBefore"`
	FilesBefore      int `json:"filesBefore"`
}

// History is all that was seen.
type History struct {
	Clients   []Client   `json:"clients"`
	Attempts  []Attempt  `json:"attempts"`
	Standings []Standing `json:"standings"`
	Routers   []Router   `json:"routers"`
}

// Log collects a history from many goroutines.
type Log struct {
	mu sync.Mutex // guards all
	h  History
}

// Client adds a request that has ended.
func (l *Log) Client(c *Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.h.Clients = append(l.h.Clients, *c)
}

// Stands adds what became of a worker.
func (l *Log) Stands(s Standing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.h.Standings = append(l.h.Standings, s)
}

// Attempt adds what an engine saw.
func (l *Log) Attempt(a ...Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.h.Attempts = append(l.h.Attempts, a...)
}

// Router adds what a router says.
func (l *Log) Router(r Router) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.h.Routers = append(l.h.Routers, r)
}

// History returns a copy of what has come so far; what the records point to is shared.
func (l *Log) History() History {
	l.mu.Lock()
	defer l.mu.Unlock()
	return History{slices.Clone(l.h.Clients), slices.Clone(l.h.Attempts), slices.Clone(l.h.Standings), slices.Clone(l.h.Routers)}
}

// line is one record of a file.
type line struct {
	Client   *Client   `json:"client,omitempty"`
	Attempt  *Attempt  `json:"attempt,omitempty"`
	Standing *Standing `json:"standing,omitempty"`
	Router   *Router   `json:"router,omitempty"`
}

// Write writes a record a line, as JSON.
func Write(w io.Writer, h *History) error {
	e := json.NewEncoder(w)
	var err error
	put := func(l line) {
		if err == nil {
			err = e.Encode(l)
		}
	}
	for i := range h.Clients {
		put(line{Client: &h.Clients[i]})
	}
	for i := range h.Attempts {
		put(line{Attempt: &h.Attempts[i]})
	}
	for i := range h.Standings {
		put(line{Standing: &h.Standings[i]})
	}
	for i := range h.Routers {
		put(line{Router: &h.Routers[i]})
	}
	return err
}

// mostLine bounds a record.
const mostLine = 64 << 20

// Read reads what Write has written.
func Read(r io.Reader) (History, error) {
	var h History
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, mostLine)
	for n := 1; lines.Scan(); n++ {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return h, fmt.Errorf("record %d: %w", n, err)
		}
		switch {
		case l.Client != nil:
			h.Clients = append(h.Clients, *l.Client)
		case l.Attempt != nil:
			h.Attempts = append(h.Attempts, *l.Attempt)
		case l.Standing != nil:
			h.Standings = append(h.Standings, *l.Standing)
		case l.Router != nil:
			h.Routers = append(h.Routers, *l.Router)
		default:
			return h, fmt.Errorf("record %d is of no kind", n)
		}
	}
	return h, lines.Err()
}
