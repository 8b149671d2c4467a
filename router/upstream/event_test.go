package upstream

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// FuzzEvent holds that a message which is read into an event says the same as one that is read into a fresh message, whatever
// was read before.
func FuzzEvent(f *testing.F) {
	write := func(list ...*workerv1.GenerateResponse) []byte {
		var out []byte
		for _, m := range list {
			b, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			out = protowire.AppendBytes(out, b)
		}
		return out
	}
	token := delta("a")
	token.GetDelta().Tokens, token.GetDelta().Reasoning = []uint32{1, 2}, "r"
	token.GetDelta().ToolCalls = []*workerv1.ToolCall{{Id: "x"}}
	token.GetDelta().Logprobs = []*workerv1.Logprob{{Token: 1}}
	f.Add(write(accepted(), token, delta("b"), finish()))
	f.Add(write(token, accepted(), silent(3), token))
	f.Add(write(token, &workerv1.GenerateResponse{}))
	f.Add([]byte{4, 0x7a, 2, 1, 1}) // a field that nobody knows
	f.Fuzz(func(t *testing.T, stream []byte) {
		var e event
		for len(stream) > 0 {
			b, n := protowire.ConsumeBytes(stream)
			if n < 0 {
				return
			}
			stream = stream[n:]
			want := &workerv1.GenerateResponse{}
			wantErr := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, want)
			err := e.read(b)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("read with %v, afresh with %v", err, wantErr)
			}
			if err != nil {
				return
			}
			if want.Event == nil { // an event without anything is a delta without anything
				want.Event = &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{}}
			}
			if !proto.Equal(&e.response, want) {
				t.Fatalf("read %v, afresh %v", &e.response, want)
			}
		}
	})
}

func TestUsualDeltasAreReadTheQuickWay(t *testing.T) {
	all := delta("a")
	all.GetDelta().Tokens, all.GetDelta().Reasoning, all.GetDelta().Choice = []uint32{1, 1 << 31}, "r", 2
	for _, m := range []*workerv1.GenerateResponse{delta("a"), silent(1, 300), all} {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var e event
		if e.clear(); !e.quick(b) || !proto.Equal(&e.response, m) {
			t.Errorf("of %v the quick way reads %v", m, &e.response)
		}
	}
}

func TestADeltaCostsItsText(t *testing.T) {
	b, err := proto.Marshal(&workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{Text: " word", Tokens: []uint32{5000}}}})
	if err != nil {
		t.Fatal(err)
	}
	var e event
	if n := testing.AllocsPerRun(1000, func() { _ = e.read(b) }); n > 1 {
		t.Errorf("%v allocations a delta", n)
	}
}

// TestAMessageThatIsTooLargeIsNotKept has a worker send 64 MiB in one piece, and as many as one likes without text.
func TestAMessageThatIsTooLargeIsNotKept(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	t.Run("one piece", func(t *testing.T) {
		large := delta(strings.Repeat("x", 64<<20))
		f := newFleet(t, 1, answer(nil, accepted(), delta("a"), large))
		s, err := f.Generate(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		before := heap()
		got, err := collect(s, nil)
		var invalid *InvalidError
		if got.text != "a" || !errors.As(err, &invalid) {
			t.Errorf("got %q, %v", got.text, err)
		}
		// The worker's own copies are in this process; they are let go of with its call.
		_ = f.workers[0].ended(t)
		eventually(t, "back to what was kept before, and 2 MiB", func() bool { return heap() <= before+2<<20 })
		runtime.KeepAlive(large)
	})
	t.Run("pieces that show nothing", func(t *testing.T) {
		tokens := silent(slices.Repeat([]uint32{1 << 20}, 10_000)...)
		sent := 0
		f := newFleet(t, 1, func(_ *workerv1.GenerateRequest, o out) error {
			for ; sent < 10_000; sent++ {
				if err := o.Send(tokens); err != nil {
					return err
				}
			}
			return nil
		})
		if _, err := f.Generate(t.Context(), request()); !errors.Is(err, ErrFailed) {
			t.Errorf("got %v", err)
		}
		if _ = f.workers[0].ended(t); sent > 100 {
			t.Errorf("%d pieces of 30 KB were taken", sent)
		}
	})
}

func TestALongPromptIsSentAsItIsAndNotCopied(t *testing.T) {
	messages, tools := []byte("["+strings.Repeat("m", longPrompt)+"]"), []byte(`["t"]`)
	for name, chat := range map[string]*workerv1.ChatPrompt{
		"messages":           {Messages: messages},
		"messages and tools": {Messages: messages, Tools: tools},
		"long tools":         {Tools: messages},
	} {
		t.Run(name, func(t *testing.T) {
			r := &workerv1.GenerateRequest{RequestId: "r", AttemptId: "a", MaxTokens: 7, Prompt: &workerv1.GenerateRequest_Chat{Chat: chat}}
			out, err := codec{encoding.GetCodecV2(protocodec.Name)}.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(out, func(b mem.Buffer) bool { return &b.ReadOnlyData()[0] == &messages[0] }) {
				t.Error("the prompt is a copy")
			}
			got := &workerv1.GenerateRequest{}
			if err := proto.Unmarshal(out.Materialize(), got); err != nil || !proto.Equal(got, r) {
				t.Errorf("%v: it reads as %v", err, got)
			}
		})
	}
}

func TestAChatHasNoFieldsThatALongPromptWouldLack(t *testing.T) {
	if n := (&workerv1.ChatPrompt{}).ProtoReflect().Descriptor().Fields().Len(); n != 2 {
		t.Errorf("a chat has %d fields, marshalLong writes 2", n)
	}
}

func TestAShallowCopyHasEveryField(t *testing.T) {
	var b []byte
	fields := (&workerv1.GenerateRequest{}).ProtoReflect().Descriptor().Fields()
	oneofs := map[string]bool{}
	for i := range fields.Len() {
		f := fields.Get(i)
		if o := f.ContainingOneof(); o != nil && oneofs[string(o.Name())] {
			continue
		} else if o != nil {
			oneofs[string(o.Name())] = true
		}
		switch {
		case f.Message() != nil:
			b = protowire.AppendBytes(protowire.AppendTag(b, f.Number(), protowire.BytesType), nil)
		case f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind:
			b = protowire.AppendString(protowire.AppendTag(b, f.Number(), protowire.BytesType), "x")
		case f.Kind() == protoreflect.Fixed64Kind:
			b = protowire.AppendFixed64(protowire.AppendTag(b, f.Number(), protowire.Fixed64Type), 1)
		default:
			b = protowire.AppendVarint(protowire.AppendTag(b, f.Number(), protowire.VarintType), 1)
		}
	}
	full := &workerv1.GenerateRequest{}
	if err := proto.Unmarshal(b, full); err != nil {
		t.Fatal(err)
	}
	set := 0
	full.ProtoReflect().Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool { set++; return true })
	if want := fields.Len() - 2; set != want { // of a chat, a text and tokens there is one
		t.Fatalf("%d fields are set, want %d", set, want)
	}
	if got := shallow(full); !proto.Equal(got, full) {
		t.Errorf("the copy is %v, want %v", got, full)
	}
}
