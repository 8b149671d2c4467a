package server

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/router/gateway"
	"github.com/ringfleet/ringfleet/router/openai"
	"github.com/ringfleet/ringfleet/router/upstream"
)

func (r *rig) embeddings(ask string) (int, string) {
	r.t.Helper()
	resp, err := http.Post(r.url(0, "/v1/embeddings"), "application/json", strings.NewReader(ask))
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, body(r.t, resp)
}

// embed makes every worker answer by f.
func (r *rig) embed(f func(*workerv1.EmbedRequest) (*workerv1.EmbedResponse, error)) {
	for _, w := range r.workers {
		w.mu.Lock()
		w.embed = f
		w.mu.Unlock()
	}
}

func TestEmbeddingsComeFromAWorkerAndFromAnotherWhereThatFails(t *testing.T) {
	r := start(t, func(*Options) {})
	r.ready()
	var calls atomic.Int32
	r.embed(func(q *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
		if calls.Add(1) == 1 {
			return nil, status.Error(codes.Internal, "engine")
		}
		if len(q.GetInputs()) != 2 || q.GetInputs()[0].GetText().GetText() != "a" || q.GetInputs()[1].GetTokens().GetTokens()[1] != 6 || q.GetExpectedRevision() != "r1" {
			return nil, status.Error(codes.Internal, fmt.Sprint(q))
		}
		return &workerv1.EmbedResponse{PromptTokens: 3, Vectors: []*workerv1.Vector{{Values: []float32{1, 0}}, {Values: []float32{0, 1}}}}, nil
	})
	code, got := r.embeddings(`{"model":"alias/of-m","input":["a",[5,6]]}`)
	const want = `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1,0]},{"object":"embedding","index":1,"embedding":[0,1]}],` +
		`"model":"alias/of-m","usage":{"prompt_tokens":3,"total_tokens":3}}`
	if code != 200 || got != want {
		t.Errorf("%d %s", code, got)
	}
	r.eventually("the figures", func() bool {
		_, figures := r.get(2, "/metrics")
		return strings.Contains(figures, `ringfleet_router_requests_total{model="m",outcome="ok"} 1`) &&
			strings.Contains(figures, `ringfleet_router_retries_total{model="m"} 1`) && strings.Contains(figures, `ringfleet_router_prompt_tokens_total{model="m"} 3`)
	})
}

func TestWhatAWorkerSaysOfEmbeddingsBecomesItsStatus(t *testing.T) {
	invalid, err := status.New(codes.InvalidArgument, "x").WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
		{Field: "input[0]", Description: "token 9 is none"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, func(*Options) {})
	r.ready()
	for name, c := range map[string]struct {
		answer *workerv1.EmbedResponse
		err    error
		status int
		say    []string
	}{
		"an engine that makes none":     {nil, status.Error(codes.Unimplemented, "none"), 400, []string{`"code":"invalid_value"`, `"param":"model"`, "makes no embeddings"}},
		"an input that it can't run":    {nil, invalid.Err(), 400, []string{`"param":"input[0]"`, "token 9 is none"}},
		"a full queue":                  {nil, status.Error(codes.ResourceExhausted, "full"), 429, []string{"slow_down"}},
		"that it drains":                {nil, status.Error(codes.Unavailable, "drains"), 503, []string{"no_capacity"}},
		"too few vectors":               {&workerv1.EmbedResponse{}, nil, 502, []string{"worker_lost", "engine failed"}},
		"numbers that are none":         {&workerv1.EmbedResponse{Vectors: []*workerv1.Vector{{Values: []float32{float32(math.NaN())}}}}, nil, 502, []string{"worker_lost"}},
		"vectors that have nothing":     {&workerv1.EmbedResponse{Vectors: []*workerv1.Vector{{}}}, nil, 502, []string{"worker_lost"}},
		"the vector that was asked for": {&workerv1.EmbedResponse{Vectors: []*workerv1.Vector{{Values: []float32{1}}}}, nil, 200, []string{`"embedding":[1]`}},
	} {
		t.Run(name, func(t *testing.T) {
			r.embed(func(*workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) { return c.answer, c.err })
			code, got := r.embeddings(`{"model":"m","input":"a"}`)
			if code != c.status {
				t.Errorf("%d %s", code, got)
			}
			for _, want := range c.say {
				if !strings.Contains(got, want) {
					t.Errorf("no %s in %s", want, got)
				}
			}
		})
	}
}

func TestAnAdapterIsAskedForByItsName(t *testing.T) {
	r := start(t, func(*Options) {})
	close(r.answer)
	r.ready()
	resp, err := r.chat(`{"model":"tuned","messages":[{"role":"user","content":"x"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := body(t, resp); resp.StatusCode != 200 || !strings.Contains(got, `"model":"tuned"`) {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
	if calls := append(r.workers[0].seen(), r.workers[1].seen()...); len(calls) != 1 || calls[0].GetAdapter() != "tuned" {
		t.Errorf("workers saw %v", calls)
	}
	if _, list := r.get(0, "/v1/models/tuned"); !strings.Contains(list, `"parent":"m"`) {
		t.Errorf("listed as %s", list)
	}
	lacks, err := status.New(codes.InvalidArgument, "x").WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
		{Field: "model", Reason: "model_not_found", Description: "not loaded"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range r.workers {
		w.mu.Lock()
		w.fails = lacks.Err
		w.mu.Unlock()
	}
	for _, stream := range []string{"", `"stream":true,`} {
		if resp, err = r.chat(`{` + stream + `"model":"tuned","messages":[{"role":"user","content":"x"}]}`); err != nil {
			t.Fatal(err)
		}
		if got := body(t, resp); resp.StatusCode != 404 || !strings.Contains(got, `"code":"model_not_found"`) || !strings.Contains(got, `"param":"model"`) || !strings.Contains(got, "tuned") {
			t.Errorf("%d %s", resp.StatusCode, got)
		}
	}
}

func TestTheNameInFiguresIsTheModelsWhereItHasOne(t *testing.T) {
	for want, m := range map[string]discovery.Model{
		"m":     {Name: "m", ServedNames: []string{"alias", "m", "tuned"}, Adapters: []string{"tuned"}},
		"alias": {Name: "m", ServedNames: []string{"tuned", "alias"}, Adapters: []string{"tuned"}},
		"tuned": {Name: "m", ServedNames: []string{"tuned"}, Adapters: []string{"tuned"}},
	} {
		if got := label(m); got != want {
			t.Errorf("%v is %q, want %q", m, got, want)
		}
	}
}

func TestVectorsOfDifferentLengthsAreTheWorkersFault(t *testing.T) {
	if _, err := vectors([]*workerv1.Vector{{Values: []float32{1}}, {Values: []float32{1, 2}}}, 2); err == nil || !strings.Contains(err.Error(), "vector 1 has 2 numbers") {
		t.Errorf("got %v", err)
	}
	got, err := vectors([]*workerv1.Vector{{Values: []float32{1}}, {Values: []float32{2}}}, 2)
	if err != nil || !reflect.DeepEqual(got, [][]float32{{1}, {2}}) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestEmbeddingsThatTakeTooLongSayHowManyInputs(t *testing.T) {
	var f *gateway.Fault
	err := (&generator{}).fault(&gateway.Call{FirstByte: hangs, Embedding: &openai.EmbeddingRequest{Inputs: make([]openai.Input, 7)}}, &upstream.Error{Kind: upstream.ErrFirstByte})
	if !errors.As(err, &f) || f.Kind != gateway.NoFirstByte || !strings.Contains(f.Message, "of the 7 inputs within 1m0s") {
		t.Errorf("got %+v", err)
	}
}
