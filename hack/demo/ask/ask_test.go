package ask

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	testclock "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const good = ": keep-alive\n\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"Par\"}}]}\n\n" +
	"data: {\"choices\":[{\"delta\":{\"content\":\"is.\"}}]}\n\ndata: {\"choices\":[],\"usage\":{\"completion_tokens\":3}}\n\ndata: [DONE]\n\n"

func TestAnAnswerIsReadAsItStreams(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		body       string
		want, fail string // text, or part of the error
	}{
		"a whole answer":         {200, good, "Paris.", ""},
		"one that breaks off":    {200, strings.ReplaceAll(good, "data: [DONE]\n\n", ""), "Paris.", "broke off before its end"},
		"one that ends in error": {200, "data: {\"error\":{\"message\":\"worker lost\"}}\n\n", "", "ended in an error: worker lost"},
		"what is not JSON":       {200, "data: {\n\n", "", "read the stream"},
		"a refusal":              {404, `{"error":{"message":"no such model"}}`, "", "404 Not Found: {\"error\":{\"message\":\"no such model\"}}"},
	} {
		t.Run(name, func(t *testing.T) {
			var got map[string]any
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.URL.Path != "/v1/chat/completions" {
					t.Errorf("%s: %v", r.URL, err)
				}
				w.Header().Set("X-Ringfleet-Worker", "w1")
				w.WriteHeader(c.status)
				if _, err := io.WriteString(w, c.body); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			var out bytes.Buffer
			client := Client{HTTP: server.Client(), Clock: testclock.NewFakeClock(time.Unix(0, 0))}
			a, err := client.Stream(t.Context(), Question{URL: server.URL + "/v1/", Model: "m", Prompt: "p", MaxTokens: 9}, &out)
			if out.String() != c.want {
				t.Errorf("wrote %q, expected %q", out.String(), c.want)
			}
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Errorf("error %v, expected one with %q", err, c.fail)
				}
				return
			}
			if err != nil || a.Text != c.want || a.Tokens != 3 || a.Worker != "w1" {
				t.Errorf("%+v, %v", a, err)
			}
			if got["stream"] != true || got["model"] != "m" || got["max_tokens"] != 9.0 {
				t.Errorf("sent %v", got)
			}
		})
	}
}

func TestTheRateLeavesTheFirstTokenOut(t *testing.T) {
	for name, c := range map[string]struct {
		answer Answer
		want   float64
	}{
		"eleven tokens in one second after the first": {Answer{Tokens: 11, FirstToken: time.Second, Total: 2 * time.Second}, 10},
		"a single token has none":                     {Answer{Tokens: 1, FirstToken: time.Second, Total: 2 * time.Second}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.answer.TokensPerSecond(); got != c.want {
				t.Errorf("%v, expected %v", got, c.want)
			}
		})
	}
}
