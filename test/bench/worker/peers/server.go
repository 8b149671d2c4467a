package peers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/api/engineargs"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
	"github.com/ringfleet/ringfleet/test/bench/worker/programs"
	"github.com/ringfleet/ringfleet/test/bench/worker/timeline"
)

// name is what the servers call the model.
const name = "smol"

// Server is an engine that speaks OpenAI's protocol.
type Server struct {
	*process.Process
	url  string
	http *http.Client
}

// StartLlamaServer starts llama-server as the manager would, and returns when it is healthy.
func StartLlamaServer(ctx context.Context, p programs.Programs) (*Server, error) {
	// The builds of its library's kernels are looked for in the current folder, too.
	spec := process.Spec{Path: p.LlamaServer, Dir: p.Libraries, Env: []string{"LD_LIBRARY_PATH=" + p.Search}}
	return startServer(ctx, spec, engineargs.LlamaServer, engineargs.Settings{
		Model: p.Weights, Name: name, ContextTokens: serverTokens, MaxSequences: Sequences, Threads: Threads,
		Extra: []string{"--cache-ram", "1024"}, // MiB of prompts kept besides; its own default is 8192
	})
}

// StartVLLM starts vLLM on the CPU, and returns when it is healthy.
func StartVLLM(ctx context.Context, p programs.Programs) (*Server, error) {
	spec := process.Spec{Path: p.VLLM, Args: []string{"serve"},
		Env: []string{"VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", fmt.Sprintf("OMP_NUM_THREADS=%d", Threads)}}
	return startServer(ctx, spec, engineargs.VLLM, engineargs.Settings{
		Model: p.VLLMModel, Name: name, ContextTokens: 2048, MaxSequences: Sequences, DType: "bfloat16", Extra: []string{"--enforce-eager"},
	})
}

// startServer starts a server with the arguments that the manager would give it, after those of spec.
func startServer(ctx context.Context, spec process.Spec, kind engineargs.Kind, s engineargs.Settings) (*Server, error) {
	port, err := process.Port()
	if err != nil {
		return nil, err
	}
	s.Port = port
	for _, v := range engineargs.Env(kind, s) {
		spec.Env = append(spec.Env, v.Name+"="+v.Value)
	}
	spec.Args = append(spec.Args, engineargs.Args(kind, s)...)
	run, err := process.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	server := &Server{Process: run, url: fmt.Sprintf("http://127.0.0.1:%d", port), http: &http.Client{
		// Servers may close a kept connection under the next request.
		Transport: &http.Transport{DisableKeepAlives: true},
	}}
	if err := server.untilHealthy(ctx); err != nil {
		run.Stop()
		return nil, err
	}
	return server, nil
}

func (s *Server) untilHealthy(ctx context.Context) error {
	t := time.NewTicker(glance)
	defer t.Stop()
	for {
		if s.healthy(ctx) {
			return nil
		}
		select {
		case <-s.Ended():
			return s.Lost()
		case <-ctx.Done():
			return fmt.Errorf("wait for a healthy server: %w", ctx.Err())
		case <-t.C:
		}
	}
}

func (s *Server) healthy(ctx context.Context) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/health", nil)
	if err != nil {
		return false
	}
	answer, err := s.http.Do(r)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// Ask implements Engine.
func (s *Server) Ask(ctx context.Context, q Request) (timeline.Answer, error) {
	body, err := json.Marshal(map[string]any{
		"model": name, "prompt": q.Prompt, "max_tokens": q.MaxTokens, "temperature": 0, "ignore_eos": true,
		"stream": true, "stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		return timeline.Answer{}, err
	}
	n := note(q)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return n.Answer, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := s.http.Do(r)
	if err != nil {
		return n.Answer, fmt.Errorf("ask the server: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
		return n.Answer, fmt.Errorf("ask the server: %s: %s", answer.Status, text)
	}
	if err := n.events(answer.Body); err != nil {
		return n.Answer, fmt.Errorf("hear the server's answer: %w", err)
	}
	return n.whole(q)
}

// events reads server-sent events to their end.
func (n *noted) events(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return nil
		}
		var event struct {
			Choices []struct{ Text string }
			Usage   *struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
			Error json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return fmt.Errorf("read the event %q: %w", data, err)
		}
		if event.Error != nil {
			return fmt.Errorf("the server says %s", event.Error)
		}
		if len(event.Choices) > 0 && event.Choices[0].Text != "" {
			n.came(1)
		}
		if event.Usage != nil {
			n.Prompt, n.Completion = event.Usage.Prompt, event.Usage.Completion
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the answer ended in the middle")
}
