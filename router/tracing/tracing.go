// Package tracing tells a collector of OpenTelemetry how requests went: one span for each, named as the conventions for
// generative AI name it, without a word of what was said. It is off unless there is an endpoint; a caller's trace context is
// handed on to the workers in any case. It decides nothing about a request.
package tracing

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

// Options say where to and as whom.
type Options struct {
	// Endpoint is the URL of a collector that speaks OTLP by gRPC, such as http://collector:4317 or https://collector:4317;
	// empty: nothing is told to anybody.
	Endpoint string
	// Version, Namespace and Pod are those of this router.
	Version, Namespace, Pod string
}

// Tracer makes spans. A nil Tracer makes none, and hands trace contexts on.
type Tracer struct {
	provider *trace.TracerProvider
	tracer   api.Tracer
}

// limits of what waits for the collector: what comes beyond is dropped.
const (
	mostWaiting = 2048
	mostAtOnce  = 512
)

// New returns a tracer that tells the collector at the endpoint; nil where there is none. Whether the collector is there is
// not looked at: it may come later.
func New(ctx context.Context, o Options) (*Tracer, error) {
	if o.Endpoint == "" {
		return nil, nil
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(o.Endpoint))
	if err != nil {
		return nil, fmt.Errorf("trace to %s: %w", o.Endpoint, err)
	}
	return with(o, trace.NewBatchSpanProcessor(exporter, trace.WithMaxQueueSize(mostWaiting), trace.WithMaxExportBatchSize(mostAtOnce))), nil
}

// with is a tracer that gives its spans to p. A caller's sampling decision holds; without one every request is traced.
func with(o Options, p trace.SpanProcessor) *Tracer {
	who := resource.NewSchemaless(
		attribute.String("service.name", "ringfleet-router"), attribute.String("service.version", o.Version),
		attribute.String("k8s.namespace.name", o.Namespace), attribute.String("k8s.pod.name", o.Pod))
	t := &Tracer{provider: trace.NewTracerProvider(trace.WithSpanProcessor(p), trace.WithResource(who),
		trace.WithSampler(trace.ParentBased(trace.AlwaysSample())))}
	t.tracer = t.provider.Tracer("github.com/ringfleet/ringfleet/router")
	return t
}

// Close tells the collector what waits, as far as ctx lets it.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Request is what a span says.
type Request struct {
	// Operation is chat or embeddings; Model the name that was asked for, empty where it is none of ours.
	Operation, Model string
	// Outcome is the request's; Error says that it failed.
	Outcome string
	Error   bool
	// ID is the request's, Worker the pod that answered, Tier the class; Resumes how often the answer moved.
	ID, Worker, Tier string
	Resumes          int
	Status           int
	// FirstText is the time to the first text; 0 where none came.
	FirstText                                time.Duration
	PromptTokens, CachedTokens, AnswerTokens uint32
}

var headers propagation.TraceContext

// Begin returns the context of a request with its trace in it, for the workers too, and what ends its span.
func (t *Tracer) Begin(ctx context.Context, h http.Header) (context.Context, func(Request)) {
	if t == nil {
		return outgoing(ctx, h.Get("Traceparent"), h.Get("Tracestate")), func(Request) {}
	}
	ctx = headers.Extract(ctx, propagation.HeaderCarrier(h))
	ctx, span := t.tracer.Start(ctx, "request", api.WithSpanKind(api.SpanKindServer))
	carrier := propagation.MapCarrier{}
	headers.Inject(ctx, carrier)
	return outgoing(ctx, carrier["traceparent"], carrier["tracestate"]), func(r Request) { end(span, r) }
}

// longest are the trace headers that are handed on, in bytes.
const longest = 512

// outgoing hands a trace context on to workers.
func outgoing(ctx context.Context, parent, state string) context.Context {
	if parent == "" || len(parent) > longest || !visible(parent) {
		return ctx
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", parent)
	if state != "" && len(state) <= longest && visible(state) {
		ctx = metadata.AppendToOutgoingContext(ctx, "tracestate", state)
	}
	return ctx
}

// visible reports whether gRPC takes s as metadata.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// end says how a request went, in the words of the conventions.
func end(span api.Span, r Request) {
	name := r.Operation
	if r.Model != "" {
		name += " " + r.Model
		span.SetAttributes(attribute.String("gen_ai.request.model", r.Model), attribute.String("gen_ai.response.model", r.Model))
	}
	span.SetName(name)
	span.SetAttributes(
		attribute.String("gen_ai.operation.name", r.Operation), attribute.String("gen_ai.provider.name", "ringfleet"),
		attribute.Int("gen_ai.usage.input_tokens", int(r.PromptTokens)), attribute.Int("gen_ai.usage.output_tokens", int(r.AnswerTokens)),
		attribute.Int("ringfleet.cached_tokens", int(r.CachedTokens)), attribute.Int("ringfleet.resumes", r.Resumes),
		attribute.String("ringfleet.request_id", r.ID), attribute.String("ringfleet.worker", r.Worker),
		attribute.String("ringfleet.tier", r.Tier), attribute.String("ringfleet.outcome", r.Outcome),
		attribute.Int("http.response.status_code", r.Status),
	)
	if r.FirstText > 0 {
		span.SetAttributes(attribute.Float64("gen_ai.server.time_to_first_token", r.FirstText.Seconds()))
	}
	if r.Error {
		span.SetStatus(codes.Error, r.Outcome)
		span.SetAttributes(attribute.String("error.type", r.Outcome))
	}
	span.End()
}
