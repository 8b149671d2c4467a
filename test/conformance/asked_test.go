package conformance

import (
	"time"

	"github.com/ringfleet/ringfleet/worker/engine/enginetest"
)

// smol is what SmolLM2-135M-Instruct is asked, whatever runs it.
func smol(name string) enginetest.Harness {
	return enginetest.Harness{
		Name: name,
		Chat: `[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"Tell me about the sea."}]`,
		Text: "Once upon a time there was a king who",
		Long: " sea",
		Wide: "🙂🚀🙂🚀🙂🚀🙂🚀🙂🚀🙂🚀",
		JSONChat: `[{"role":"user","content":"Answer with a JSON object that has a truth and a word, such as ` +
			`{\"ok\": true, \"word\": \"blue\"}"}]`,
		Tools: `[{"type":"function","function":{"name":"get_weather","description":"Tells the weather of a city",` +
			`"parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]`,
		// A model as small as this one calls a tool when it has seen it done.
		ToolChat: `[{"role":"system","content":"You call a tool for each question about the weather."},` +
			`{"role":"user","content":"What is the weather in Oslo?"},` +
			`{"role":"assistant","content":"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>"},` +
			`{"role":"user","content":"It rains. What is the weather in Rome?"},` +
			`{"role":"assistant","content":"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>"},` +
			`{"role":"user","content":"It is sunny. What is the weather in Paris?"}]`,
		Patience: 5 * time.Minute, // on a busy machine of two cores
	}
}
