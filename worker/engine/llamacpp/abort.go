package llamacpp

import (
	"context"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// abort tells a running step to end. The library holds its address, so it is pinned until the context is freed.
type abort struct {
	step atomic.Pointer[context.Context]
	pin  runtime.Pinner
}

func (a *abort) address() uintptr { return uintptr(unsafe.Pointer(a)) }

// aborted is called by the library between the nodes of a step; it answers 1 to end it.
func aborted(a *abort) (end uintptr) {
	defer func() { _ = recover() }() // a panic can't pass through C
	if ctx := a.step.Load(); ctx != nil && (*ctx).Err() != nil {
		lines.hushed.Store(true)
		return 1
	}
	return 0
}

// decode runs a batch whose computing ends soon after ctx.
func (a *abort) decode(ctx context.Context, c llama.Context, b llama.Batch) (code int32, err error) {
	lines.reset() // an error quotes lines of this pass, not of the load
	a.step.Store(&ctx)
	code, err = llama.Decode(c, b)
	a.step.Store(nil)
	lines.hushed.Store(false)
	return code, err
}

// ear is whether a context asks, while it computes, if it should end. It asks at each of about a thousand nodes of a graph,
// and each question goes from C to Go and back: together more than a millisecond, a tenth of what a small model takes for
// one token. So it asks in steps with a prompt in them, and the others run to their end.
type ear struct {
	lib     *library
	context llama.Context
	abort   *abort
	open    bool
}

// hear opens the ear for steps with a prompt among items, and shuts it for all others.
func (e *ear) hear(items []engine.Item) {
	want := false
	for _, it := range items {
		want = want || len(it.Tokens) > 1
	}
	if want == e.open {
		return
	}
	e.open = want
	var callback, data uintptr
	if want {
		callback, data = e.lib.abort, e.abort.address()
	}
	e.lib.setAbort.Call(nil, unsafe.Pointer(&e.context), unsafe.Pointer(&callback), unsafe.Pointer(&data))
}
