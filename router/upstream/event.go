package upstream

import (
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// What one stream may hold in memory, together less than 1 MiB: what gRPC has received and nobody has read (streamWindow), one
// message, and the pieces that came before the first that shows something.
const (
	maxEvent = 512 << 10
	maxHead  = 256 << 10
)

// mostTokens is for how many tokens of a delta an event keeps its memory: usual ones have a few.
const mostTokens = 1024

// event is a message of an answer that is read into again and again: a delta costs the bytes of its text.
type event struct {
	response workerv1.GenerateResponse
	delta    *workerv1.GenerateResponse_Delta
}

// read takes a message from its bytes. What came before is void.
func (e *event) read(b []byte) error {
	e.clear()
	if e.quick(b) {
		return nil
	}
	e.clear()
	// A merge into the delta that is there, which is empty, or another event in its place. Unknown fields would gather.
	return proto.UnmarshalOptions{Merge: true, DiscardUnknown: true}.Unmarshal(b, &e.response)
}

// clear makes e an empty delta.
func (e *event) clear() {
	if e.delta == nil {
		e.delta = &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{}}
	}
	tokens := e.delta.Delta.Tokens
	e.delta.Delta.Reset()
	if cap(tokens) <= mostTokens {
		e.delta.Delta.Tokens = tokens[:0]
	}
	e.response.Event = e.delta
}

// The fields of a GenerateResponse and of a Delta that nearly every message has, and no other.
const (
	fieldDelta                                         protowire.Number = 2
	fieldText, fieldTokens, fieldChoice, fieldThinking protowire.Number = 1, 2, 3, 4
)

// quick reads a message that is a delta of text, tokens, choice and reasoning. It returns false, and leaves anything behind,
// where there is more or something is wrong: protobuf's own way is right for every message, and allocates for the tokens, too.
func (e *event) quick(b []byte) bool {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || num != fieldDelta || typ != protowire.BytesType {
		return false
	}
	body, m := protowire.ConsumeBytes(b[n:])
	if m < 0 || n+m != len(b) {
		return false
	}
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return false
		}
		body = body[n:]
		if num == fieldChoice && typ == protowire.VarintType {
			v, n := protowire.ConsumeVarint(body)
			if n < 0 {
				return false
			}
			e.delta.Delta.Choice, body = uint32(v), body[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(body)
		if typ != protowire.BytesType || n < 0 || !e.piece(num, v) {
			return false
		}
		body = body[n:]
	}
	return true
}

// piece takes a field of a delta that has a length. It returns false where it is none that it knows, or wrong.
func (e *event) piece(num protowire.Number, v []byte) bool {
	d := e.delta.Delta
	switch num {
	case fieldText:
		d.Text = string(v)
		return utf8.Valid(v)
	case fieldThinking:
		d.Reasoning = string(v)
		return utf8.Valid(v)
	case fieldTokens:
		d.Tokens = slices.Grow(d.Tokens, varints(v))
		for len(v) > 0 {
			t, n := protowire.ConsumeVarint(v)
			if n < 0 {
				return false
			}
			d.Tokens, v = append(d.Tokens, uint32(t)), v[n:]
		}
		return true
	}
	return false
}

// codec is gRPC's own, which makes a message for each call of RecvMsg, and events; long prompts it does not copy.
type codec struct{ encoding.CodecV2 }

// Marshal writes a message. The bytes of a long prompt become a part of it as they are, so that they must not change before
// the attempt has ended.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*workerv1.GenerateRequest); ok {
		if chat := r.GetChat(); len(chat.GetMessages())+len(chat.GetTools()) >= longPrompt {
			return marshalLong(r, chat)
		}
	}
	return c.CodecV2.Marshal(v)
}

// unread is what a message is read into that nobody needs.
type unread struct{}

// Unmarshal reads into an *event, or what gRPC's codec reads into.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if _, ok := v.(unread); ok {
		return nil
	}
	e, ok := v.(*event)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	return e.read(b.ReadOnlyData())
}

// varints is how many numbers end in b.
func varints(b []byte) (n int) {
	for _, c := range b {
		if c < 0x80 {
			n++
		}
	}
	return n
}

// longPrompt is from how many bytes on a prompt is worth more pieces than one.
const longPrompt = 8 << 10

// The fields of a chat in a GenerateRequest.
const (
	fieldChat                    protowire.Number = 6
	fieldMessages, fieldToolList protowire.Number = 1, 2
)

// marshalLong writes r with its chat's bytes as pieces of their own, behind all else.
func marshalLong(r *workerv1.GenerateRequest, chat *workerv1.ChatPrompt) (mem.BufferSlice, error) {
	rest := shallow(r)
	rest.Prompt = nil
	head, err := proto.Marshal(rest)
	if err != nil {
		return nil, err
	}
	length := 0
	pieces := [][]byte{chat.GetMessages(), chat.GetTools()}
	fields := []protowire.Number{fieldMessages, fieldToolList}
	for i, p := range pieces {
		if len(p) > 0 {
			length += protowire.SizeTag(fields[i]) + protowire.SizeBytes(len(p))
		}
	}
	head = protowire.AppendVarint(protowire.AppendTag(head, fieldChat, protowire.BytesType), uint64(length))
	var out mem.BufferSlice
	for i, p := range pieces {
		if len(p) > 0 {
			head = protowire.AppendVarint(protowire.AppendTag(head, fields[i], protowire.BytesType), uint64(len(p)))
			out = append(out, mem.SliceBuffer(head), mem.SliceBuffer(p))
			head = nil
		}
	}
	return out, nil
}

// generateOptions are those of every call of Generate and GenerateMany.
var generateOptions = []grpc.CallOption{
	grpc.ForceCodecV2(codec{encoding.GetCodecV2(protocodec.Name)}),
	grpc.MaxCallRecvMsgSize(maxEvent),
}
