package dialect

import "github.com/ringfleet/ringfleet/worker/engine"

// output collects the parts of one Push. Neighbours of one kind become one.
type output struct {
	parts []engine.Part
	calls int // that began
}

func (o *output) text(s string) {
	if s == "" {
		return
	}
	if p := o.lastPart(); p != nil && p.Text != "" {
		p.Text += s
		return
	}
	o.parts = append(o.parts, engine.Part{Text: s})
}

func (o *output) reasoning(s string) {
	if s == "" {
		return
	}
	if p := o.lastPart(); p != nil && p.Reasoning != "" {
		p.Reasoning += s
		return
	}
	o.parts = append(o.parts, engine.Part{Reasoning: s})
}

// call begins the next call.
func (o *output) call(name string) {
	o.parts = append(o.parts, engine.Part{Call: &engine.ToolCall{Index: o.calls, Name: name}})
	o.calls++
}

// arguments belong to the call that began last.
func (o *output) arguments(s string) {
	if s == "" {
		return
	}
	if p := o.lastPart(); p != nil && p.Call != nil && p.Call.Name == "" {
		p.Call.Arguments += s
		return
	}
	o.parts = append(o.parts, engine.Part{Call: &engine.ToolCall{Index: o.calls - 1, Arguments: s}})
}

func (o *output) take() []engine.Part {
	out := o.parts
	o.parts = nil
	return out
}

func (o *output) lastPart() *engine.Part {
	if len(o.parts) == 0 {
		return nil
	}
	return &o.parts[len(o.parts)-1]
}
