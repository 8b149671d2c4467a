package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringfleet/ringfleet/router/gateway"
	"github.com/ringfleet/ringfleet/router/placement"
	"github.com/ringfleet/ringfleet/router/upstream"
)

// plainFaults are the errors of package upstream of which all is said by their kind.
var plainFaults = []struct {
	is    error
	fault gateway.Fault
}{
	{upstream.ErrBusy, gateway.Fault{Kind: gateway.Busy}},
	{upstream.ErrQuarantined, gateway.Fault{Kind: gateway.Quarantined}},
	{upstream.ErrSlowReader, gateway.Fault{Kind: gateway.SlowReader}},
	{upstream.ErrNoEmbeddings, gateway.Fault{Kind: gateway.Invalid, Param: "model",
		Message: "The model makes no embeddings: it or its engine is not made for them. Ask for another model."}},
	{upstream.ErrFailed, gateway.Fault{Kind: gateway.Lost, Message: "The worker's engine failed."}},
	{upstream.ErrLost, gateway.Fault{Kind: gateway.Lost, Message: "The worker was lost before the answer was complete."}},
}

// fault puts an error of the queue or of package upstream into the gateway's words. The end of the call's context stays what
// it is.
func (g *generator) fault(c *gateway.Call, err error) error {
	if waited := g.waited(c, err); waited != nil {
		return waited
	}
	var on *upstream.Error
	f, known := g.special(c, err)
	for i := 0; !known && i < len(plainFaults); i++ {
		if errors.Is(err, plainFaults[i].is) && !errors.Is(err, placement.ErrNoWorker) {
			f, known = plainFaults[i].fault, true
		}
	}
	if !known {
		return err
	}
	f.Err = err
	if errors.As(err, &on) {
		f.Worker = on.Worker
		if on.Stays != "" {
			f.Message += " The answer could not go on at another one: " + on.Stays + "."
		}
	}
	return &f
}

// special knows the errors of which there is more to say.
func (g *generator) special(c *gateway.Call, err error) (gateway.Fault, bool) {
	var on *upstream.Error
	var invalid *upstream.InvalidError
	var none *placement.NoWorkerError
	var f gateway.Fault
	switch {
	case errors.As(err, &invalid):
		f = gateway.Fault{Kind: gateway.Invalid, Message: invalid.Message, Param: param(invalid.Field), TooLong: invalid.Code == codeContextLength}
	case errors.Is(err, upstream.ErrTooLarge) && errors.As(err, &on):
		f = gateway.Fault{Kind: gateway.TooLarge, Message: fmt.Sprintf(
			"The request is larger than a worker takes: %s. Send a shorter conversation or fewer inputs at once.", on.Detail)}
	case errors.Is(err, upstream.ErrNoAdapter):
		f = gateway.Fault{Kind: gateway.NoAdapter, Param: "model", Message: fmt.Sprintf(
			"No worker that was asked has loaded the adapter %q. Where the model is being rolled out, send the request again later.", c.Adapter)}
	case errors.Is(err, upstream.ErrFirstByte) && c.Embedding != nil:
		f = gateway.Fault{Kind: gateway.NoFirstByte, Message: fmt.Sprintf(
			"The worker made no embeddings of the %d inputs within %s. Send fewer at once.", len(c.Embedding.Inputs), c.FirstByte)}
	case errors.Is(err, upstream.ErrFirstByte):
		f = gateway.Fault{Kind: gateway.NoFirstByte, Message: fmt.Sprintf("The worker sent no token within %s.", c.FirstByte)}
	case errors.Is(err, upstream.ErrIdle):
		f = gateway.Fault{Kind: gateway.Silent, Message: fmt.Sprintf("The worker sent nothing for %s before the answer was complete.", c.Idle)}
	case errors.As(err, &none) && none.Excluded == 0:
		f.Kind, f.Message = g.fleet.state(c.ModelUID).say()
	case errors.Is(err, placement.ErrNoWorker): // they were asked, and refused
		f = gateway.Fault{Kind: gateway.NoCapacity, Message: "No worker of the model took the request.", RetryAfter: 2 * time.Second}
	default:
		return f, false
	}
	return f, true
}
