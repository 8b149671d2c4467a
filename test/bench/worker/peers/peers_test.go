package peers

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// printed is a line of llama-batched-bench --output-format jsonl.
const printed = `{"n_kv_max": 8192, "n_batch": 2048, "n_ubatch": 512, "flash_attn": -1, "is_pp_shared": 0, "n_gpu_layers": -1, "n_threads": 1, ` +
	`"n_threads_batch": 1, "pp": 16, "tg": 32, "pl": 8, "n_kv": 384, "t_pp": 0.445000, "speed_pp": 287.87, "t_tg": 2.135000, "speed_tg": 119.88, "t": 2.58, "speed": 148.83}`

func TestALineOfBatchedBenchIsTakenOnlyWhenItIsOfTheRun(t *testing.T) {
	run := Batched{Sequences: 8, Prompt: 16, Steps: 32}
	if rate, err := run.read(printed); err != nil || rate != 119.88 {
		t.Errorf("%v, %v", rate, err)
	}
	for name, line := range map[string]string{
		"another number of sequences": strings.Replace(printed, `"pl": 8`, `"pl": 4`, 1),
		"another prompt":              strings.Replace(printed, `"pp": 16`, `"pp": 512`, 1),
		"other steps":                 strings.Replace(printed, `"tg": 32`, `"tg": 1`, 1),
		"more threads":                strings.Replace(printed, `"n_threads": 1`, `"n_threads": 2`, 1),
		"no rate":                     strings.Replace(printed, `119.88`, `0`, 1),
		"half a line":                 printed[:100],
	} {
		if rate, err := run.read(line); err == nil {
			t.Errorf("%s: %v", name, rate)
		}
	}
}

func TestATokensProcessorTimeIsThatOfStepsAlone(t *testing.T) {
	// Prompts take 90 ms, a step 10 ms for 2 sequences; the measured round has 5 steps, the next one has one.
	used := [rounds - 1]time.Duration{time.Second, time.Second + 140*time.Millisecond, time.Second + 240*time.Millisecond}
	if got := (Batched{Sequences: 2, Steps: 5}).each(used); got != 5*time.Millisecond {
		t.Errorf("%s", got)
	}
}

func corpus(t *testing.T) *Corpus {
	t.Helper()
	tokens := make([]uint32, 2000)
	for i := range tokens {
		tokens[i] = uint32(i) //nolint:gosec // small
	}
	c, err := NewCorpus(tokens, 1)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPromptsHaveTheirLengthAndShareOnlyTheirPrefix(t *testing.T) {
	c := corpus(t)
	prefix := c.Prompt(nil, 509)
	if len(prefix) != 509 {
		t.Fatalf("%d tokens", len(prefix))
	}
	seen := map[uint32]bool{}
	for _, q := range c.Requests(16, prefix, 19, 7) {
		if len(q.Prompt) != 528 || q.MaxTokens != 7 || !slices.Equal(q.Prompt[:509], prefix) {
			t.Fatalf("%d tokens, %d wanted", len(q.Prompt), q.MaxTokens)
		}
		if seen[q.Prompt[509]] {
			t.Error("two go on alike")
		}
		seen[q.Prompt[509]] = true
	}
	if again := corpus(t).Prompt(nil, 509); !slices.Equal(prefix, again) {
		t.Error("equal seeds made other prompts")
	}
}

func TestACorpusNeedsTokens(t *testing.T) {
	if _, err := NewCorpus(make([]uint32, 10), 1); err == nil {
		t.Error("ten are enough")
	}
	if n := len(strings.Fields(Text())); n != 3000 {
		t.Errorf("the text has %d words", n)
	}
}

func TestEventsAreReadToTheirEnd(t *testing.T) {
	const usage = `data: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3}}` + "\n\n"
	const text = `data: {"choices":[{"text":"a"}]}` + "\n\n"
	for name, c := range map[string]struct {
		body, bad string
		pieces    int
	}{
		"an answer":                      {text + text + usage + "data: [DONE]\n\n", "", 2},
		"a piece without text":           {text + `data: {"choices":[{"text":""}]}` + "\n\n" + usage + "data: [DONE]\n\n", "", 1},
		"comments":                       {": ping\n\n" + text + usage + "data: [DONE]\n\n", "", 1},
		"a usage of another count":       {text + strings.Replace(usage, "3}", "2}", 1) + "data: [DONE]\n\n", "where 3 tokens were asked for", 1},
		"no token":                       {usage + "data: [DONE]\n\n", "in 0 pieces", 0},
		"one that ends in the middle":    {text, "ended in the middle", 1},
		"an error in the middle":         {text + `data: {"error":{"message":"full"}}` + "\n\n", "full", 1},
		"something that is not an event": {"data: {\n\n", "read the event", 0},
	} {
		q := Request{Prompt: []uint32{1, 2}, MaxTokens: 3}
		n := note(q)
		err := n.events(strings.NewReader(c.body))
		if err == nil {
			_, err = n.whole(q)
		}
		if (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s: %v", name, err)
		}
		if len(n.Arrivals) != c.pieces {
			t.Errorf("%s: %d pieces", name, len(n.Arrivals))
		}
	}
}

func TestACallerHearsOfTheTokensSoFar(t *testing.T) {
	var heard []int
	n := note(Request{Each: func(tokens int) { heard = append(heard, tokens) }})
	n.came(1)
	n.came(2)
	if !slices.Equal(heard, []int{1, 3}) {
		t.Errorf("%v", heard)
	}
}
