package command

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// chatOptions are the flags of chat.
type chatOptions struct {
	url         string
	system      string
	maxTokens   int64
	temperature float64
	quiet       bool
}

func chatCommand(c *cluster, s Streams) *cobra.Command {
	var o chatOptions
	cmd := &cobra.Command{
		Use:   "chat MODEL [PROMPT...]",
		Short: "Ask a model and see the answer as it comes",
		Long: "Ask a model through one of the namespace's routers (by a port-forward, so no Ingress is needed) and see the " +
			"answer as it comes. Without a prompt, a conversation: one line a turn, an empty line or Ctrl-D ends it; " +
			"a turn that fails is left out of it. " +
			"With - as the prompt, the prompt is read from standard input.",
		Example: "  kubectl ringfleet chat smollm2 Tell me the name of the capital of France.\n" +
			"  kubectl ringfleet chat smollm2\n" +
			"  kubectl ringfleet chat smollm2 - < question.txt",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeModels(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runChat(cmd.Context(), c, s, o, args[0], strings.Join(args[1:], " "))
		},
	}
	cmd.Flags().StringVar(&o.url, "url", "", "base URL of the API, such as http://host/v1, instead of a port-forward")
	cmd.Flags().StringVar(&o.system, "system", "", "system message")
	cmd.Flags().Int64Var(&o.maxTokens, "max-tokens", 0, "most tokens of an answer (0: as many as the context allows)")
	cmd.Flags().Float64Var(&o.temperature, "temperature", 0.7, "0 takes the likeliest token every time; up to 2")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print the answer only, no figures")
	return cmd
}

func runChat(ctx context.Context, c *cluster, s Streams, o chatOptions, name, prompt string) error {
	base, model := o.url, name
	if base == "" {
		k, err := c.connect()
		if err != nil {
			return err
		}
		var models v1alpha1.InferenceModelList
		if err := k.list(ctx, "inferencemodels", &models); err != nil {
			return err
		}
		found, err := pick(models.Items, name, k.namespace)
		if err != nil {
			return err
		}
		if model, err = servedName(&found[0], name); err != nil {
			return err
		}
		address, stop, err := forward(ctx, k)
		if err != nil {
			return err
		}
		defer stop()
		base = "http://" + address + "/v1"
	}
	t := newTalk(base, model, o, c.clock)
	switch prompt {
	case "":
		return t.converse(ctx, s)
	case "-":
		text, err := io.ReadAll(io.LimitReader(s.In, 8<<20))
		if err != nil {
			return fmt.Errorf("read the prompt: %w", err)
		}
		prompt = string(text)
	}
	return t.turn(ctx, s, prompt)
}

// servedName returns the name to ask for: the one that the user gave if it is served, else the model's first that is not an
// adapter's.
func servedName(m *v1alpha1.InferenceModel, name string) (string, error) {
	for _, n := range m.Status.ServedNames {
		if n == name {
			return n, nil
		}
	}
	if len(m.Status.ServedNames) == 0 {
		_, why := condition(m.Status.Conditions, v1alpha1.Ready)
		return "", fmt.Errorf("model %s is served under no name: %s", m.Name, orDash(why))
	}
	for _, n := range m.Status.ServedNames {
		if !slices.ContainsFunc(m.Spec.Adapters, func(a v1alpha1.Adapter) bool { return a.Name == n }) {
			return n, nil
		}
	}
	return "", fmt.Errorf("model %s has no name of its own, only adapters: name one of %s", m.Name, strings.Join(m.Status.ServedNames, ", "))
}

// talk is one conversation: its turns meet one worker, which still has their KV cache.
type talk struct {
	base, session string
	request       chatRequest
	quiet         bool
	clock         clock.PassiveClock
}

func newTalk(base, model string, o chatOptions, clk clock.PassiveClock) *talk {
	t := &talk{base: base, session: rand.Text(), quiet: o.quiet, clock: clk}
	t.request = chatRequest{
		Model: model, Temperature: o.temperature, MaxTokens: o.maxTokens,
		Stream: true, StreamOptions: map[string]any{"include_usage": true},
	}
	if o.system != "" {
		t.request.Messages = append(t.request.Messages, message{"system", o.system})
	}
	return t
}

// converse takes a line for a turn until an empty one, the end of the input or that of ctx. A turn that fails is told of
// and as if it had never been, so that the line can be sent again.
func (t *talk) converse(ctx context.Context, s Streams) error {
	lines := bufio.NewScanner(s.In)
	lines.Buffer(nil, 1<<20)
	for {
		if !t.quiet {
			fmt.Fprint(s.Err, "> ")
		}
		if !lines.Scan() || strings.TrimSpace(lines.Text()) == "" {
			return lines.Err()
		}
		err := t.turn(ctx, s, lines.Text())
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			fmt.Fprintln(s.Err, "ringfleet:", err)
		}
	}
}

// turn asks once, prints the answer as it comes and remembers both, or neither when it fails.
func (t *talk) turn(ctx context.Context, s Streams, prompt string) error {
	before := len(t.request.Messages)
	t.request.Messages = append(t.request.Messages, message{"user", prompt})
	start := t.clock.Now()
	var first time.Time
	var answer strings.Builder
	var tokens int64
	err := ask(ctx, t.base, t.session, t.request, func(c chatChunk) {
		if c.Usage != nil {
			tokens = c.Usage.CompletionTokens
		}
		if len(c.Choices) == 0 || c.Choices[0].Delta.Content == "" {
			return
		}
		if first.IsZero() {
			first = t.clock.Now()
		}
		answer.WriteString(c.Choices[0].Delta.Content)
		fmt.Fprint(s.Out, c.Choices[0].Delta.Content)
	})
	fmt.Fprintln(s.Out)
	if err != nil {
		t.request.Messages = t.request.Messages[:before]
		return fmt.Errorf("ask model %s: %w", t.request.Model, err)
	}
	t.request.Messages = append(t.request.Messages, message{"assistant", answer.String()})
	if !t.quiet && !first.IsZero() {
		fmt.Fprintln(s.Err, figures(tokens, first.Sub(start), t.clock.Now().Sub(first)))
	}
	return nil
}

// figures says how fast an answer came: decode is the time from the first token to the last.
func figures(tokens int64, ttft, decode time.Duration) string {
	line := fmt.Sprintf("[%s, first after %d ms", count(tokens, "token", "tokens"), ttft.Milliseconds())
	if tokens > 1 && decode > 0 {
		line += fmt.Sprintf(", then %.0f tokens/s", float64(tokens-1)/decode.Seconds())
	}
	return line + "]"
}
