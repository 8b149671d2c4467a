package gateway

import (
	"strings"

	"github.com/ringfleet/ringfleet/router/openai"
)

// maxGathered is how many bytes of an answer are collected, about. Streamed answers have no bound.
const maxGathered = 32 << 20

// size is about how many bytes a piece takes.
func size(d *openai.Delta) int {
	n := len(d.Text) + len(d.Reasoning) + sizeOf(d.Logprobs)
	for _, t := range d.ToolCalls {
		n += len(t.ID) + len(t.Name) + len(t.Arguments)
	}
	return n
}

func sizeOf(list []openai.Logprob) (n int) {
	const each = 64 // without its bytes
	for _, l := range list {
		n += each + len(l.Bytes) + sizeOf(l.Top)
	}
	return n
}

// gathered is a choice that is collected piece by piece.
type gathered struct {
	text, reasoning pieces
	calls           []*gatheredCall // a builder must not be moved
	logprobs        []openai.Logprob
	finish          openai.FinishReason
}

type gatheredCall struct {
	id, name  string
	arguments pieces
}

// pieces is a text in pieces. A single one is not copied.
type pieces struct {
	first string
	all   strings.Builder // once there are two
}

func (j *pieces) add(piece string) {
	switch {
	case piece == "":
	case j.first == "":
		j.first = piece
	default:
		if j.all.Len() == 0 {
			j.all.WriteString(j.first)
		}
		j.all.WriteString(piece)
	}
}

func (j *pieces) String() string {
	if j.all.Len() > 0 {
		return j.all.String()
	}
	return j.first
}

func (g *gathered) add(e *Event) {
	g.text.add(e.Delta.Text)
	g.reasoning.add(e.Delta.Reasoning)
	g.logprobs = append(g.logprobs, e.Delta.Logprobs...)
	for _, t := range e.Delta.ToolCalls {
		if t.ID != "" {
			g.calls = append(g.calls, &gatheredCall{id: t.ID, name: t.Name})
		}
		if int(t.Index) < len(g.calls) {
			g.calls[t.Index].arguments.add(t.Arguments)
		}
	}
	if e.Finish != "" {
		g.finish = e.Finish
	}
}

func (g *gathered) choice() openai.Choice {
	c := openai.Choice{Text: g.text.String(), Reasoning: g.reasoning.String(), Logprobs: g.logprobs, Finish: g.finish}
	for i, call := range g.calls {
		c.ToolCalls = append(c.ToolCalls, openai.ToolCall{Index: uint32(i), ID: call.id, Name: call.name, Arguments: call.arguments.String()})
	}
	return c
}
