package placement

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestWorkTranscripts tells what is known of one worker while requests come and go and reports arrive. See testdata/work.
func TestWorkTranscripts(t *testing.T) {
	if *update {
		if err := flag.Set("rewrite", "true"); err != nil {
			t.Fatal(err)
		}
	}
	datadriven.Walk(t, "testdata/work", func(t *testing.T, path string) {
		s := &script{t: t, board: board(Options{}, 1), now: epoch, tickets: map[string]*Ticket{}}
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			s.t = t
			var out strings.Builder
			for line := range strings.Lines(td.Input) {
				s.do(strings.Fields(line))
				fmt.Fprintf(&out, "%-70s %s\n", strings.TrimSpace(line), s.say())
			}
			return out.String()
		})
	})
}

// script is a transcript under way.
type script struct {
	t       *testing.T
	board   *Board
	now     time.Time
	tickets map[string]*Ticket
}

// say is what is known of the worker.
func (s *script) say() string {
	s.board.View(uid).state.mu.Lock()
	defer s.board.View(uid).state.mu.Unlock()
	l := lives(s.board)["w0"]
	return fmt.Sprintf("load %d (%d + %d others), %.0f tokens ahead, %d held, %.2f s for a seat",
		l.load(), l.own, l.others, l.ahead(s.now), l.held(), l.seat(defaultAnswer))
}

func (s *script) do(words []string) {
	switch words[0] {
	case "place":
		s.tickets[words[1]] = place(s.t, s.board, &Request{ModelUID: uid, RequestID: words[1], PromptTokens: uint32(s.number(words[3]))}, s.now)
	case "accept":
		s.tickets[words[1]].Accepted(uint32(s.number(words[2])), s.now)
	case "first":
		s.tickets[words[1]].FirstToken(s.now)
	case "end":
		s.tickets[words[1]].Ended(Result{Answered: true, PromptTokens: uint32(s.number(words[2])),
			CachedTokens: uint32(s.number(words[3])), CompletionTokens: uint32(s.number(words[4]))}, s.now)
	case "drop":
		s.tickets[words[1]].Ended(Result{}, s.now)
	case "after":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = s.now.Add(d)
	case "report":
		s.board.Observe(uid, words[1], "i"+words[1][1:], s.report(words[2:]), s.now)
	default:
		s.t.Fatalf("unknown word %q", words[0])
	}
}

func (s *script) report(words []string) Load {
	var l Load
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		if name == "ids" {
			l.RequestIDs = strings.Split(value, ",")
			continue
		}
		n := s.number(value)
		switch name {
		case "running":
			l.Running = int(n)
		case "waiting":
			l.Waiting = int(n)
		case "seats":
			l.Seats = int(n)
		case "total":
			l.KVTotal = &n
		case "used":
			l.KVUsed = &n
		case "backlog":
			l.Backlog = &n
		default:
			s.t.Fatalf("unknown figure %q", w)
		}
	}
	return l
}

func (s *script) number(w string) uint64 {
	n, err := strconv.ParseUint(w, 10, 63)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}
