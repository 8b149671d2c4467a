package dialect

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ardanlabs/jinja"
)

// Templates of released models, which the Jinja library brings for its own tests: what Detect says of each by its text, and
// After by the prompt of a chat.
func TestReleasedTemplatesAreRecognised(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/ardanlabs/jinja").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "templates", "*.jinja"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no templates in %s: %v", dir, err)
	}
	want := map[string]string{
		"DeepSeek-V4-Flash":                  "deepseek-dsml, reasoning <think>…</think>",
		"GLM-5.2":                            "glm, reasoning <think>…</think>, opened by the prompt",
		"Kimi-K3":                            "",
		"LFM2.5-VL-1.6B-Q8_0":                "lfm2, reasoning <think>…</think>",
		"Llama-3.2-1B-Instruct-GGUF":         "llama3",
		"Ministral-3-14B-Instruct-2512-Q4_0": "mistral",
		"Mistral-Medium-3.5-128B-GGUF":       "mistral, reasoning [THINK]…[/THINK]",
		"NVIDIA-Nemotron-3-Super":            "qwen3-coder, reasoning <think>…</think>, opened by the prompt",
		"Qwen2-Audio-7B.Q8_0":                "",
		"Qwen3-8B-Q8_0":                      "hermes, reasoning <think>…</think>",
		"Qwen3-VL-30B-A3B-Instruct-Q8_0":     "hermes",
		"Qwen3.5-35B-A3B-Q8_0":               "qwen3-coder, reasoning <think>…</think>, opened by the prompt",
		"Qwen3.6-35B-A3B-UD-Q4_K_M":          "qwen3-coder, reasoning <think>…</think>, opened by the prompt",
		"gemma-4-26B-A4B-it-UD-Q8_K_XL":      "gemma4, reasoning <|channel>thought…<channel|>",
		"gpt-oss-20b-Q8_0":                   "harmony",
		"laguna":                             "glm, reasoning <think>…</think>, opened by the prompt",
		"rnj-1-instruct-Q6_K":                "hermes",
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jinja")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			d := Detect(string(text)).After(render(t, string(text)))
			if got := strings.TrimSpace(describe(d)); got != want[name] {
				t.Errorf("detected %q, want %q", got, want[name])
			}
		})
	}
}

// render returns the prompt of a chat.
func render(t *testing.T, template string) string {
	t.Helper()
	compiled, err := jinja.Compile(template)
	if err != nil {
		t.Fatal(err)
	}
	message := jinja.NewDict()
	message.AsDict().Set("role", jinja.NewString("user"))
	message.AsDict().Set("content", jinja.NewString("Hi"))
	out, err := compiled.RenderValues(map[string]jinja.Value{"messages": jinja.NewList([]jinja.Value{message}),
		"add_generation_prompt": jinja.NewBool(true), "bos_token": jinja.NewString("<s>"), "eos_token": jinja.NewString("</s>")})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAPromptShowsWhetherReasoningIsOpen(t *testing.T) {
	d := Detect("<tool_call></think>")
	for prompt, want := range map[string]bool{
		"":                                          false,
		"<|im_start|>assistant\n":                   false,
		"<|im_start|>assistant\n<think>\n":          true,
		"assistant<think>":                          true,
		"assistant\n<think>\n\n</think>\n\n":        false,
		"user: what is <think>?\nassistant":         false,
		"<think>a</think>b\nassistant\n<think>\n\n": true,
	} {
		if got := d.After(prompt).opened; got != want {
			t.Errorf("after %q: %v", prompt, got)
		}
	}
	if Detect("").After("<think>") != (Dialect{}) {
		t.Error("a model without reasoning has it after a prompt")
	}
}

// Each text of a marker is found at the same place however the markers are searched.
func TestNoOpenerIsPartOfAnotherMarker(t *testing.T) {
	for _, f := range families {
		if f.channels {
			continue
		}
		openers := f.calls(tools{}).openers()
		for _, a := range openers {
			for _, b := range openers {
				if a != b && strings.Contains(b, a) {
					t.Errorf("%s: %q is part of %q", f.name, a, b)
				}
			}
			for _, m := range reasonings {
				if strings.Contains(a, m.open) || strings.Contains(m.open, a) || strings.Contains(a, m.closing) || strings.Contains(m.closing, a) {
					t.Errorf("%s: %q and %v", f.name, a, m)
				}
			}
		}
	}
}

func TestMarkupIsWhatTheSplitterMustSee(t *testing.T) {
	for template, want := range map[string]string{
		"":                               "[]",
		"{{ '</think>' }}":               "[<think> </think>]",
		"<tool_call></think>":            "[<think> </think> <tool_call> </tool_call>]",
		"<|python_tag|>":                 "[<|python_tag|>]",
		"<|channel|>analysis<|message|>": "[<|start|> <|channel|> <|constrain|> <|message|> <|end|>]",
		"[TOOL_CALLS]{{ '[/THINK]' }}":   "[[THINK] [/THINK] [TOOL_CALLS] [ARGS] [CALL_ID]]",
	} {
		if got := fmt.Sprint(Detect(template).Markup()); got != want {
			t.Errorf("%q: %s, want %s", template, got, want)
		}
	}
}

func TestToolsAreReadAsFarAsTheyAreUnderstood(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "map[] true",
		" [] ":                        "map[] true",
		"null":                        "map[] true",
		"{":                           "map[] false",
		`[{"function":{"name":"a"}}]`: "map[a:map[]] false",
		`[{"function":{"name":"a","parameters":{"properties":{"p":{"type":"string"},"q":{"type":["integer","null"]},
			"r":{"anyOf":[{"type":"boolean"},{"oneOf":[{"type":"array"},{"type":"object"}]}]},"s":{"anyOf":[{"type":"string"},{}]},
			"t":{"enum":["a",1,null]},"u":{"$ref":"#"},"v":true,"w":{"type":"any"}}}}}]`: fmt.Sprintf(
			"map[a:map[p:%d q:%d r:%d s:0 t:%d u:0 v:0 w:0]] false", kindString, kindNumber|kindNull,
			kindBoolean|kindArray|kindObject, kindString|kindNumber|kindNull),
		`[{"function":{"name":"a","parameters":{"properties":[1]}}},{"function":{"name":"b"}}]`: "map[a:map[] b:map[]] false",
	} {
		got := readTools([]byte(text))
		if s := fmt.Sprint(got, got == nil); s != want {
			t.Errorf("of %s\n%s, want\n%s", text, s, want)
		}
	}
}
