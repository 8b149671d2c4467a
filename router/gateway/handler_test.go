package gateway

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

var refused = map[string]struct {
	method, path, body  string
	header              []string
	status              int
	param, code, say    string
	allow               string
	notSynced, tooLarge bool
}{
	"an unknown path":                 {method: "POST", path: "/v1/completions", status: 404, code: "unknown_url", say: "POST /v1/chat/completions, POST /v1/embeddings"},
	"GET of embeddings":               {method: "GET", path: pathEmbeddings, status: 405, code: "method_not_allowed", allow: "POST"},
	"embeddings of an unknown model":  {method: "POST", path: pathEmbeddings, body: `{"model":"smollm3","input":"x"}`, status: 404, param: "model", code: "model_not_found", say: `Did you mean smollm2?`},
	"embeddings of nothing":           {method: "POST", path: pathEmbeddings, body: `{"model":"small","input":[]}`, status: 400, param: "input", code: "invalid_value", say: "1 to 2048"},
	"embeddings in a large body":      {method: "POST", path: pathEmbeddings, body: strings.Repeat(" ", 64<<10+1), status: 413, code: "request_too_large", say: "65536"},
	"embeddings before the sync":      {method: "POST", path: pathEmbeddings, body: `{"model":"small","input":"x"}`, notSynced: true, status: 503, code: "router_starting"},
	"the root":                        {method: "GET", path: "/", status: 404, code: "unknown_url"},
	"models with a slash and no id":   {method: "GET", path: "/v1/models/", status: 404, code: "unknown_url"},
	"GET of chat":                     {method: "GET", path: pathChat, status: 405, code: "method_not_allowed", allow: "POST"},
	"DELETE of a model":               {method: "DELETE", path: "/v1/models/small", status: 405, code: "method_not_allowed", allow: "GET, HEAD"},
	"POST of models":                  {method: "POST", path: pathModels, body: "{}", status: 405, code: "method_not_allowed", allow: "GET, HEAD"},
	"an unknown model":                {method: "POST", path: pathChat, body: `{"model":"smollm3","messages":[{"role":"user","content":"x"}]}`, status: 404, param: "model", code: "model_not_found", say: `Did you mean smollm2? GET /v1/models lists all.`},
	"a model of another owner":        {method: "GET", path: "/v1/models/me/small-1.0", status: 404, param: "model", code: "model_not_found", say: "org/small-1.0"},
	"an unknown model like no other":  {method: "GET", path: "/v1/models/%20zzzzzzzz", status: 404, param: "model", code: "model_not_found", say: "There is no model"},
	"malformed JSON":                  {method: "POST", path: pathChat, body: `{"model":`, status: 400, param: "model", code: "invalid_json"},
	"an empty body":                   {method: "POST", path: pathChat, header: []string{"Content-Type", "application/json"}, status: 400, code: "invalid_json"},
	"no messages":                     {method: "POST", path: pathChat, body: `{"model":"small","messages":[]}`, status: 400, param: "messages", code: "invalid_value"},
	"max_tokens of 0":                 {method: "POST", path: pathChat, body: strings.Replace(ask, `{`, `{"max_tokens":0,`, 1), status: 400, param: "max_tokens", code: "invalid_value"},
	"temperature of x":                {method: "POST", path: pathChat, body: strings.Replace(ask, `{`, `{"temperature":"x",`, 1), status: 400, param: "temperature", code: "invalid_type"},
	"a body of one byte too many":     {method: "POST", path: pathChat, body: strings.Repeat(" ", 64<<10+1), status: 413, code: "request_too_large", say: "65536"},
	"an endless body":                 {method: "POST", path: pathChat, body: strings.Repeat(" ", 1<<20), tooLarge: true, status: 413, code: "request_too_large"},
	"a compressed body":               {method: "POST", path: pathChat, body: ask, header: []string{"Content-Encoding", "gzip"}, status: 415, code: "unsupported_content_encoding"},
	"a form":                          {method: "POST", path: pathChat, body: ask, header: []string{"Content-Type", "application/x-www-form-urlencoded"}, status: 415, code: "unsupported_media_type", say: "application/json"},
	"no content type":                 {method: "POST", path: pathChat, body: ask, header: []string{"Content-Type", ""}, status: 415, code: "unsupported_media_type"},
	"a request before the first sync": {method: "POST", path: pathChat, body: ask, notSynced: true, status: 503, code: "router_starting"},
	"the list before the first sync":  {method: "GET", path: pathModels, notSynced: true, status: 503, code: "router_starting"},
	"a model before the first sync":   {method: "GET", path: "/v1/models/x", notSynced: true, status: 503, code: "router_starting"},
}

func TestBadInputIsRefusedAndNoWorkerSeesIt(t *testing.T) {
	for name, c := range refused {
		t.Run(name, func(t *testing.T) {
			r := newRig(clock.RealClock{}, says("hi"))
			if c.notSynced {
				r.state.Store(nil)
			}
			var w *httptest.ResponseRecorder
			if c.tooLarge { // without a length
				req := httptest.NewRequest(c.method, c.path, struct{ *strings.Reader }{strings.NewReader(c.body)})
				req.Header.Set("Content-Type", "application/json")
				w = httptest.NewRecorder()
				r.ServeHTTP(w, req)
			} else {
				w = r.do(c.method, c.path, c.body, c.header...)
			}
			message, _, param, code := errorObject(t, w.Body.Bytes())
			if w.Code != c.status || param != c.param || code != c.code || !strings.Contains(message, c.say) {
				t.Errorf("%d %q %q %q, want %d %q %q %q", w.Code, param, code, message, c.status, c.param, c.code, c.say)
			}
			if w.Header().Get("Allow") != c.allow || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("headers %v", w.Header())
			}
			if c.status == 503 && w.Header().Get("Retry-After") == "" {
				t.Error("503 without Retry-After")
			}
			if n := r.script.count(); n != 0 {
				t.Errorf("a worker was asked %d times", n)
			}
		})
	}
}

var faults = map[string]struct {
	fault   Fault
	status  int
	kind    string
	code    string
	outcome string
	retry   bool
}{
	"no workers":               {Fault{Kind: NoCapacity}, 503, "service_unavailable_error", "no_capacity", "no_worker", true},
	"workers that load":        {Fault{Kind: Loading, Message: "One worker is loading: 40 %."}, 503, "service_unavailable_error", "model_loading", "no_worker", true},
	"a full queue":             {Fault{Kind: Busy}, 429, "rate_limit_error", "slow_down", "busy", true},
	"a prompt that is too big": {Fault{Kind: Invalid, Param: "messages", TooLong: true}, 400, "invalid_request_error", "context_length_exceeded", "invalid", false},
	"an adapter that none has": {Fault{Kind: NoAdapter, Param: "model"}, 404, "invalid_request_error", "model_not_found", "not_found", false},
	"what no worker can run":   {Fault{Kind: Invalid, Param: "seed"}, 400, "invalid_request_error", "invalid_value", "invalid", false},
	"what no worker takes":     {Fault{Kind: TooLarge}, 413, "invalid_request_error", "request_too_large", "invalid", false},
	"a lost worker":            {Fault{Kind: Lost}, 502, "server_error", "worker_lost", "upstream", false},
	"a client that is slow":    {Fault{Kind: SlowReader}, 408, "invalid_request_error", "slow_reader", "cancelled", false},
	"one that killed two":      {Fault{Kind: Quarantined}, 400, "invalid_request_error", "request_quarantined", "upstream", false},
	"no first byte":            {Fault{Kind: NoFirstByte}, 504, "server_error", "first_byte_timeout", "timeout", false},
}

func TestAFaultBecomesItsStatus(t *testing.T) {
	for name, c := range faults {
		for _, body := range []string{ask, askStream} {
			for _, late := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					p := play{refuse: &c.fault}
					if late {
						p = play{steps: []step{accepted, {err: &c.fault}}}
					}
					r := newRig(clock.RealClock{}, p)
					w := r.do("POST", pathChat, body)
					message, kind, param, code := errorObject(t, w.Body.Bytes())
					if w.Code != c.status || kind != c.kind || code != c.code || param != c.fault.Param {
						t.Errorf("%d %q %q %q", w.Code, kind, code, param)
					}
					if c.fault.Message != "" && message != c.fault.Message {
						t.Errorf("message %q", message)
					}
					after, _ := strconv.Atoi(w.Header().Get("Retry-After"))
					if c.retry != (after >= 1 && after <= 60) {
						t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
					}
					if got := r.figures.String(); got != "org/small-1.0 "+c.outcome {
						t.Errorf("counted as %q", got)
					}
					if r.script.count() != 1 {
						t.Errorf("asked %d times, want once", r.script.count())
					}
				})
			}
		}
	}
}

func TestModelsAreListedAndFoundByAnyIdTheyHave(t *testing.T) {
	r := newRig(clock.RealClock{})
	list := r.do("GET", pathModels, "").Body.String()
	const want = `{"object":"list","data":[` +
		`{"id":"hf.co/a/b:Q4","object":"model","created":0,"owned_by":"ringfleet"},` +
		`{"id":"org/small-1.0","object":"model","created":1700000000,"owned_by":"ringfleet"},` +
		`{"id":"small","object":"model","created":1700000000,"owned_by":"ringfleet"},` +
		`{"id":"smollm2","object":"model","created":0,"owned_by":"ringfleet"}]}`
	if list != want {
		t.Errorf("list %s", list)
	}
	for path, id := range map[string]string{
		"/v1/models/small": "small", "/v1/models/org/small-1.0": "org/small-1.0", "/v1/models/org%2Fsmall-1.0": "org/small-1.0",
		"/v1/models/hf.co/a/b:Q4": "hf.co/a/b:Q4", "/v1/models/hf.co%2Fa%2Fb%3AQ4": "hf.co/a/b:Q4",
	} {
		if w := r.do("GET", path, ""); w.Code != 200 || !strings.HasPrefix(w.Body.String(), `{"id":"`+id+`"`) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestARequestIdIsKeptWhereItIsFitToBeOne(t *testing.T) {
	r := newRig(clock.RealClock{})
	for own, kept := range map[string]bool{
		"abc-1_2.3:4/5": true, "": false, "a b": false, "a\"b": false, strings.Repeat("a", 128): true, strings.Repeat("a", 129): false, "é": false,
	} {
		got := r.do("GET", pathModels, "", "X-Request-Id", own).Header().Get("X-Request-Id")
		if (got == own) != kept || len(got) < 8 && !kept {
			t.Errorf("%q became %q", own, got)
		}
	}
}

func TestALogLineTellsWhoAndHowLongAndNeverWhat(t *testing.T) {
	r := newRig(clock.RealClock{}, says("ANSWER"))
	r.do("POST", pathChat, ask, "X-Request-Id", "id-1", "Authorization", "Bearer KEY")
	r.do("POST", pathChat, `{"model":"nobody","messages":[{"role":"user","content":"SECRET"}]}`)
	log := r.logged.String()
	for _, want := range []string{`"request_id":"id-1"`, `"model":"org/small-1.0"`, `"worker":"worker-0"`, `"outcome":"ok"`, `"prompt_tokens":9`, `"completion_tokens":2`, `"cached_tokens":4`, `"outcome":"not_found"`} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in %s", want, log)
		}
	}
	for _, never := range []string{"SECRET", "ANSWER", "KEY", "nobody"} {
		if strings.Contains(log, never) {
			t.Errorf("%s in %s", never, log)
		}
	}
	if n := strings.Count(log, "\n"); n != 2 {
		t.Errorf("%d lines for two requests", n)
	}
	if got := r.figures.String(); got != "org/small-1.0 ok,unknown not_found" {
		t.Errorf("counted as %q", got)
	}
}

func TestACallCarriesTheRequestAndNoHeader(t *testing.T) {
	r := newRig(clock.RealClock{}, says("hi"))
	r.do("POST", pathChat, `{"messages": [ {"role":"user","content":"é\u00e9"} ],"model":"org/small-1.0","seed":3,"temperature":0.5,"top_p":0.9,"stop":"x","max_tokens":7}`,
		"X-Session-Id", "s1", "X-Request-Id", "id-1", "Authorization", "Bearer KEY")
	c := r.script.calls[0]
	if string(c.Chat.Messages) != `[ {"role":"user","content":"é\u00e9"} ]` {
		t.Errorf("messages %s", c.Chat.Messages)
	}
	if c.ModelUID != "u1" || c.RequestID != "id-1" || string(c.Key) != "session\x00s1" || c.Chat.MaxTokens != 7 || *c.Chat.Seed != 3 ||
		*c.Chat.Temperature != 0.5 || *c.Chat.TopP != 0.9 || len(c.Chat.Stop) != 1 || c.FirstByte != 2*time.Minute || c.Idle != time.Minute {
		t.Errorf("call %+v", c)
	}
}

func TestWhileDrainingClientsAreAskedForAnotherConnection(t *testing.T) {
	r := newRig(clock.RealClock{}, says("hi"))
	if w := r.do("POST", pathChat, ask); w.Header().Get("Connection") != "" {
		t.Errorf("headers %v", w.Header())
	}
	r.Drain()
	for _, body := range []string{ask, askStream} {
		if w := r.do("POST", pathChat, body); w.Code != http.StatusOK || w.Header().Get("Connection") != "close" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}
}

func TestAHandlerThatBreaksAnswers500(t *testing.T) {
	for _, body := range []string{ask, askStream} {
		r := newRig(clock.RealClock{}, play{steps: []step{accepted, {crash: true}}})
		w := r.do("POST", pathChat, body)
		if _, _, _, code := errorObject(t, w.Body.Bytes()); w.Code != 500 || code != "internal_error" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if got := r.figures.String(); got != "org/small-1.0 internal" {
			t.Errorf("counted as %q", got)
		}
	}
}

func TestRetryAfterIsNeverTooEarlyAndFrom1To60(t *testing.T) {
	for _, c := range []struct {
		d      time.Duration
		chance byte
		want   int
	}{
		{time.Millisecond, 0, 1}, {time.Second, 0, 1}, {time.Second, 255, 2}, {5 * time.Second, 255, 6}, {5*time.Second + 1, 0, 6}, {time.Hour, 9, 60},
	} {
		if got := retrySeconds(c.d, c.chance); got != c.want {
			t.Errorf("%v with %d: %d, want %d", c.d, c.chance, got, c.want)
		}
	}
}

func TestChanceAddsNothingToTheRetryAfterOfThoseWhoAreSpread(t *testing.T) {
	for spread, want := range map[bool]string{true: "20", false: "24"} {
		r := newRig(clock.RealClock{}, play{refuse: &Fault{Kind: Busy, RetryAfter: 20 * time.Second, Spread: spread}})
		r.cfg.Rand = strings.NewReader(strings.Repeat("\xff", 100))
		if got := r.do("POST", pathChat, ask).Header().Get("Retry-After"); got != want {
			t.Errorf("spread %v: Retry-After %q, want %s", spread, got, want)
		}
	}
}
