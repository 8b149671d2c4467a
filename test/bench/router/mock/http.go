package mock

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// HTTP serves OpenAI's API: chats, streamed or not, and every GET, which the routers ask for health and models.
func HTTP(p Plan) http.Handler {
	answer, token, last := whole(), event(false), event(true)
	models := fmt.Appendf(nil, `{"object":"list","data":[{"id":%q,"object":"model","created":1700000000,"owned_by":"bench"}]}`, Model)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(models)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		h := w.Header()
		// A router may put a body's fields into another order. Those of streams are short, and long ones are not looked through.
		if !bytes.Contains(body[:min(len(body), 1024)], []byte(`"stream":true`)) {
			h.Set("Content-Type", "application/json")
			h.Set("Content-Length", strconv.Itoa(len(answer)))
			_, _ = w.Write(answer)
			return
		}
		h.Set("Content-Type", "text/event-stream")
		rc := http.NewResponseController(w)
		send := func(b []byte) bool {
			_, err := w.Write(b)
			return err == nil && rc.Flush() == nil
		}
		if p.beat(r.Context().Done(), func(int) bool { return send(token) }) && send(last) {
			send([]byte("data: [DONE]\n\n"))
		}
	})
	return mux
}

// Body is a chat whose prompt has about so many bytes, as HTTP's worker and all routers take it. Its beginning is its own,
// by seed.
func Body(stream bool, bytesOfPrompt, seed int) string {
	var prompt bytes.Buffer
	for i := 0; prompt.Len() < bytesOfPrompt; i++ {
		fmt.Fprintf(&prompt, "%d is line %d of what is asked here. ", seed, i)
	}
	prompt.Truncate(max(bytesOfPrompt, 1))
	kind := `"stream":false`
	if stream {
		kind = fmt.Sprintf(`"stream":true,"stop":[%q]`, streamed)
	}
	return fmt.Sprintf(`{%s,"model":%q,"messages":[{"role":"user","content":%q}]}`, kind, Model, prompt.String())
}
