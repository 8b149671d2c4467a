package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	routerv1 "github.com/ringfleet/ringfleet/api/router/v1"
	"github.com/ringfleet/ringfleet/api/telemetry"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// alone is a router with some workers, which it does not know yet.
func alone(t *testing.T, workers int) (*herd, *listener) {
	h := newHerd(t, 0, 1, workers)
	return h, h.routers[0]
}

// refusal is the status and the code of an answer that is an error of ours.
func refusal(t *testing.T, resp *http.Response) (int, string) {
	t.Helper()
	var got struct {
		Error struct{ Message, Code string }
	}
	if err := json.Unmarshal([]byte(body(t, resp)), &got); err != nil || got.Error.Message == "" {
		t.Errorf("%d with a body that is no error of ours: %v", resp.StatusCode, err)
	}
	return resp.StatusCode, got.Error.Code
}

func TestAWorkerThatLoadsGetsNoRequestUntilItHasLoaded(t *testing.T) {
	h, l := alone(t, 1)
	w := h.workers["w-0"]
	w.change(func() { w.loading = true })
	h.settle()
	resp, err := l.chat(ask, telemetry.HeaderTimeout, "0.2")
	if err != nil {
		t.Fatal(err)
	}
	after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	if code, why := refusal(t, resp); code != 503 || why != "model_loading" || after < 1 || after > 60 {
		t.Errorf("a client that does not wait got %d %s, to come again after %d s", code, why, after)
	}
	waits := make(chan int, 1)
	go func() { code, _ := l.one("waits"); waits <- code }()
	l.eventually("it waits", func() bool { return l.fleet.gate.Stats("uid-m").Held == 1 })
	if calls, _ := w.count(); calls != 0 {
		t.Errorf("the worker that loads got %d requests", calls)
	}
	w.change(func() { w.loading = false })
	h.pass(nothing)
	h.pass(nothing)
	if code := <-waits; code != 200 {
		t.Errorf("the client that waits got %d", code)
	}
}

func TestAWorkerThatNobodyListensForIsAnErrorOfOurs(t *testing.T) {
	h, l := alone(t, 1)
	h.workers["w-0"].stop()
	h.learn(l, "w-0")
	l.eventually("it is refused", func() bool { return l.look("w-0").LastError != "" })
	resp, err := l.chat(ask, telemetry.HeaderTimeout, "0.2")
	if err != nil {
		t.Fatal(err)
	}
	if code, why := refusal(t, resp); code != 503 || why == "" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s %v", code, why, resp.Header)
	}
}

func TestAWorkerThatHangsHoldsUpNobodyElseAndItsRequestsGoOnElsewhere(t *testing.T) {
	const requests = 60
	h, l := alone(t, 2)
	h.settle()
	stuck := h.workers["w-0"]
	stuck.change(func() { stuck.script = stay() })
	answers := make(chan string, requests)
	for i := range requests {
		go func() {
			code, odd := l.one(fmt.Sprint("session-", i))
			answers <- fmt.Sprint(code, odd)
		}()
	}
	l.eventually("all are answered but those at the worker that hangs", func() bool {
		_, inside := stuck.count()
		return len(answers)+inside == requests
	})
	if n := len(answers); n < requests/5 || n > requests*4/5 {
		t.Errorf("%d of %d requests met the worker that answers: this shows little", n, requests)
	}
	stuck.change(func() { stuck.silent = true })
	for range 4 {
		h.pass(nothing)
	}
	for range requests {
		if got := <-answers; got != "200" {
			t.Errorf("a client got %s", got)
		}
	}
}

func TestNothingThatAClientSaysOfItselfReachesAWorker(t *testing.T) {
	h, l := alone(t, 1)
	h.settle()
	told := make(chan metadata.MD, 1)
	w := h.workers["w-0"]
	w.change(func() {
		w.script = func(_ *workerv1.GenerateRequest, s out) error {
			md, _ := metadata.FromIncomingContext(s.Context())
			told <- md
			return status.Error(codes.InvalidArgument, "seen")
		}
	})
	conn := l.connect()
	in := bufio.NewReader(conn)
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: evil.example\r\nConnection: keep-alive, x-internal\r\nX-Internal: evil\r\n"+
		"X-Ringfleet-Worker: evil\r\nX-Forwarded-For: evil\r\nForwarded: for=evil\r\nAuthorization: Bearer evil\r\nCookie: evil\r\nGrpc-Timeout: 1n\r\n"+
		"Accept-Encoding: br, gzip\r\nTE: trailers\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(ask))
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("%q %v", line, err)
	}
	_, _ = in.ReadString('\n')
	_, _ = io.WriteString(conn, ask)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := refusal(t, resp); code != 400 || resp.Header.Get("Content-Encoding") != "" {
		t.Errorf("%d %v", code, resp.Header)
	}
	md := <-told
	for _, key := range slices.Sorted(maps.Keys(md)) {
		known := []string{":authority", "content-type", "user-agent", "grpc-accept-encoding", "traceparent", "tracestate"}
		if value := strings.Join(md[key], " "); !slices.Contains(known, key) || strings.Contains(value, "evil") {
			t.Errorf("the worker was told %s: %s", key, value)
		}
	}
}

// connect is a bare connection of a client.
func (r *rig) connect() *net.TCPConn {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.listeners[0].Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(hangs))
	return conn.(*net.TCPConn)
}

// connected has the router ask every worker once, so that it keeps a connection to each: where a thousand requests come at once, a
// busy machine may lack the time for a handshake, which is limited to a few seconds. So the clients connect before them, too.
func (r *rig) connected() {
	r.t.Helper()
	for i, asked := 0, map[string]bool{}; len(asked) < len(r.workers); i++ {
		resp, err := r.chat(strings.Replace(askStream, `"x"`, fmt.Sprintf(`"%d"`, i), 1))
		if err != nil {
			r.t.Fatal(err)
		}
		_ = resp.Body.Close() // the client goes away
		if resp.StatusCode != 200 {
			r.t.Fatal(resp.Status)
		}
		asked[resp.Header.Get(telemetry.HeaderWorker)] = true
	}
}

func TestAThousandStreamsAndMoreRunWhileTheProbesAreAnswered(t *testing.T) {
	const streams, connections = 1050, 15
	r := start(t, func(*Options) {})
	r.ready()
	r.connected()
	ended := make(chan string, streams)
	begun := make(chan string, streams)
	var clients []*http.Client
	for range connections {
		p := new(http.Protocols)
		h2c(p)
		transport := &http.Transport{Protocols: p}
		t.Cleanup(transport.CloseIdleConnections)
		client := &http.Client{Transport: transport}
		clients = append(clients, client)
		resp, err := client.Get(r.url(0, "/v1/models"))
		if err != nil {
			t.Fatal(err)
		}
		_ = body(t, resp)
	}
	for i, client := range clients {
		for range streams / connections {
			go func() {
				resp, err := client.Post(r.url(0, "/v1/chat/completions"), "application/json", strings.NewReader(askStream))
				if err != nil {
					begun <- err.Error()
					return
				}
				begun <- resp.Status
				text, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || strings.Count(string(text), `"content":"lo"`) != 1 || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
					ended <- fmt.Sprintf("connection %d: %s %v", i, text, err)
					return
				}
				ended <- ""
			}()
		}
	}
	for range streams {
		if status := <-begun; status != "200 OK" {
			t.Fatal(status)
		}
	}
	for _, probe := range []string{"/livez", "/readyz"} {
		if code, why := r.get(2, probe); code != 200 {
			t.Errorf("%s with %d streams: %d %s", probe, streams, code, why)
		}
	}
	close(r.answer)
	for range streams {
		if odd := <-ended; odd != "" {
			t.Error(odd)
		}
	}
}

func TestAStreamThatBreaksIsOneErrorAndTheRouterServesOn(t *testing.T) {
	r := start(t, func(*Options) {})
	r.ready()
	s := r.fleetState()
	s.Settings.Resume = false
	r.states <- s
	r.states <- s // taken when the first one holds
	resp, err := r.chat(askStream)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range r.workers {
		if w.name == resp.Header.Get(telemetry.HeaderWorker) {
			w.stop()
		}
	}
	if got := body(t, resp); resp.StatusCode != 200 || strings.Count(got, `"error":`) != 1 || strings.Count(got, `"code":"worker_lost"`) != 1 ||
		strings.Count(got, `"content":"Hel"`) != 1 || strings.Contains(got, "[DONE]") {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
	close(r.answer)
	if resp, err = r.chat(ask); err != nil {
		t.Fatal(err)
	}
	if got := body(t, resp); resp.StatusCode != 200 || !strings.Contains(got, "Hello") {
		t.Errorf("the next request: %d %s", resp.StatusCode, got)
	}
	if log := r.written.String(); strings.Contains(log, "superfluous") || strings.Contains(log, "panic") {
		t.Errorf("logged %s", log)
	}
}

func TestTheLengthOfAnAnswerIsThatOfItsBody(t *testing.T) {
	r := start(t, func(*Options) {})
	close(r.answer)
	r.ready()
	for name, protocols := range map[string]func(*http.Protocols){"HTTP/1.1": http1, "HTTP/2.0": h2c} {
		p := new(http.Protocols)
		protocols(p)
		transport := &http.Transport{Protocols: p, DisableCompression: true}
		t.Cleanup(transport.CloseIdleConnections)
		for request, whole := range map[string]bool{ask: true, askStream: false, `{"model":"nobody"}`: true} {
			req, _ := http.NewRequest(http.MethodPost, r.url(0, "/v1/chat/completions"), strings.NewReader(request))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept-Encoding", "gzip, br")
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			got := body(t, resp)
			if want := int64(len(got)); resp.Proto != name || resp.Header.Get("Content-Encoding") != "" || whole && resp.ContentLength != want || !whole && resp.ContentLength != -1 {
				t.Errorf("%s: %s has length %d of %d: %v", name, request, resp.ContentLength, want, resp.Header)
			}
		}
	}
}

func TestAClientThatGoesLeavesNothingBehindHoweverItGoes(t *testing.T) {
	ends := map[string]func(*net.TCPConn) error{
		"it closes":        (*net.TCPConn).Close,
		"it resets":        func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() },
		"it sends no more": (*net.TCPConn).CloseWrite,
	}
	for stage, c := range map[string]struct {
		loading bool
		ask     string
		script  script
		reads   string // before it goes
	}{
		"held":                   {loading: true, ask: ask},
		"a stream that is held":  {loading: true, ask: askM},
		"before the first token": {ask: askM, script: stay(accepted)},
		"within a stream":        {ask: askM, script: stay(accepted, hello), reads: "Hello"},
		"before all of it":       {ask: ask, script: stay(accepted, hello)},
	} {
		t.Run(stage, func(t *testing.T) {
			h, l := alone(t, 1)
			w := h.workers["w-0"]
			w.change(func() { w.loading, w.script = c.loading, c.script })
			h.settle()
			for how, end := range ends {
				const clients = 5
				var all []*net.TCPConn
				for range clients {
					conn := l.connect()
					all = append(all, conn)
					fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(c.ask), c.ask)
					for in := bufio.NewReader(conn); c.reads != ""; {
						if line, err := in.ReadString('\n'); err != nil {
							t.Fatal(err)
						} else if strings.Contains(line, c.reads) {
							break
						}
					}
				}
				at := func() int {
					_, inside := w.count()
					return inside + l.fleet.gate.Stats("uid-m").Held
				}
				l.eventually(how+": all are there", func() bool { return at() == clients })
				for _, conn := range all {
					if err := end(conn); err != nil {
						t.Fatal(err)
					}
				}
				l.eventually(how+": all are gone", func() bool { return at() == 0 && l.rests() })
			}
			w.change(func() { w.loading, w.script = false, nil })
			h.pass(nothing)
			h.pass(nothing)
			if code, odd := l.one("the next"); code != 200 || odd != "" {
				t.Errorf("the next request: %d %s", code, odd)
			}
		})
	}
}

// askM asks for a stream by the name that a herd's model has.
const askM = `{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}`

// rests reports whether the router counts nothing that runs or waits.
func (l *listener) rests() bool {
	s := l.status(l.t)
	return s.Held == 0 && s.Queued == 0 && !slices.ContainsFunc(s.Workers, func(w *routerv1.WorkerStatus) bool { return w.InFlight > 0 })
}

func TestRequestsThatFailTakeNoPlaces(t *testing.T) {
	h, l := alone(t, 1)
	h.settle()
	w := h.workers["w-0"]
	for name, script := range map[string]script{
		"its engine fails":       fails(codes.Internal),
		"it is gone":             fails(codes.Unavailable),
		"it has no room":         fails(codes.ResourceExhausted),
		"the request is wrong":   fails(codes.InvalidArgument),
		"it fails in the middle": fails(codes.Internal, accepted, hello),
		"it ends without an end": func(_ *workerv1.GenerateRequest, s out) error {
			return send(s, accepted, hello)
		},
	} {
		w.change(func() { w.script = script })
		for i := range 10 {
			if code, odd := l.one(fmt.Sprint(name, i), telemetry.HeaderTimeout, "0.05"); code == 200 || code == 0 || strings.Contains(odd, "json") {
				t.Errorf("%s: %d %s", name, code, odd)
			}
		}
		l.eventually(name+": nothing is left", l.rests)
	}
	w.change(func() { w.script = nil })
	h.pass(nothing)
	h.pass(nothing)
	if code, odd := l.one("the next"); code != 200 || odd != "" {
		t.Errorf("the next request: %d %s", code, odd)
	}
}

// fails is the script of a worker that sends events and then fails.
func fails(code codes.Code, events ...*workerv1.GenerateResponse) script {
	return func(_ *workerv1.GenerateRequest, s out) error {
		if err := send(s, events...); err != nil {
			return err
		}
		return status.Error(code, "as the test says")
	}
}
