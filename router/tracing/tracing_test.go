package tracing

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	"google.golang.org/grpc/metadata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func given(values ...string) http.Header {
	h := http.Header{}
	for i := 0; i+1 < len(values); i += 2 {
		h.Set(values[i], values[i+1])
	}
	return h
}

// sent is what workers get.
func sent(ctx context.Context, name string) []string {
	md, _ := metadata.FromOutgoingContext(ctx)
	return md.Get(name)
}

func TestWithoutACollectorACallersTraceIsHandedOn(t *testing.T) {
	var none *Tracer
	ctx, end := none.Begin(t.Context(), given("Traceparent", parent, "Tracestate", "a=b"))
	end(Request{})
	if got := sent(ctx, "traceparent"); !slices.Equal(got, []string{parent}) {
		t.Errorf("traceparent %q", got)
	}
	if got := sent(ctx, "tracestate"); !slices.Equal(got, []string{"a=b"}) {
		t.Errorf("tracestate %q", got)
	}
	if err := none.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestATraceThatNoMetadataCanHoldIsLeftOut(t *testing.T) {
	var none *Tracer
	for _, bad := range []string{"", "00-\u00e4", strings.Repeat("x", longest+1)} {
		ctx, _ := none.Begin(t.Context(), given("Traceparent", bad))
		if got := sent(ctx, "traceparent"); got != nil {
			t.Errorf("%q is handed on as %q", bad, got)
		}
	}
}

func TestASpanContinuesItsCallersTraceAndSaysHowTheRequestWent(t *testing.T) {
	seen := tracetest.NewInMemoryExporter()
	tracer := with(Options{Version: "1"}, trace.NewSimpleSpanProcessor(seen))
	ctx, end := tracer.Begin(t.Context(), given("Traceparent", parent))
	end(Request{Operation: "chat", Model: "m", Outcome: "upstream", Error: true, PromptTokens: 7, AnswerTokens: 3, Worker: "w-0"})
	spans := seen.GetSpans()
	if len(spans) != 1 {
		t.Fatalf("%d spans", len(spans))
	}
	s := spans[0]
	if s.Name != "chat m" || s.SpanContext.TraceID().String() != parent[3:35] || s.Parent.SpanID().String() != parent[36:52] {
		t.Errorf("span %q of trace %s under %s", s.Name, s.SpanContext.TraceID(), s.Parent.SpanID())
	}
	if s.Status.Code != codes.Error || !slices.Contains(s.Attributes, attribute.Int("gen_ai.usage.input_tokens", 7)) ||
		!slices.Contains(s.Attributes, attribute.String("gen_ai.request.model", "m")) {
		t.Errorf("status %v, attributes %v", s.Status, s.Attributes)
	}
	out := sent(ctx, "traceparent")
	if len(out) != 1 || !strings.HasPrefix(out[0], parent[:36]) || strings.Contains(out[0], parent[36:52]) {
		t.Errorf("workers are told %q, want the trace and the router's own span", out)
	}
	if err := tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWithoutAnEndpointThereIsNoTracer(t *testing.T) {
	if tracer, err := New(t.Context(), Options{}); tracer != nil || err != nil {
		t.Errorf("without an endpoint: %v, %v", tracer, err)
	}
}
