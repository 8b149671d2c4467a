package openai

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

const hello = `[{"role":"user","content":"hello"}]`

// body is a valid request and some more members.
func body(more string) string {
	if more != "" {
		more = "," + more
	}
	return `{"model":"m","messages":` + hello + more + `}`
}

func conversation(messages string) string { return `{"model":"m","messages":` + messages + `}` }

var refusals = map[string]struct {
	body, param, code string
}{
	"an empty body":                           {"", "", CodeInvalidJSON},
	"white space only":                        {" \n", "", CodeInvalidJSON},
	"half an object":                          {`{"model":"m"`, "", CodeInvalidJSON},
	"something after the object":              {body("") + "x", "", CodeInvalidJSON},
	"a second object":                         {body("") + "{}", "", CodeInvalidJSON},
	"a byte order mark":                       {"\xef\xbb\xbf" + body(""), "", CodeInvalidJSON},
	"a NUL byte":                              {"\x00", "", CodeInvalidJSON},
	"an array":                                {"[]", "", CodeInvalidType},
	"a trailing comma":                        {`{"model":"m",}`, "", CodeInvalidJSON},
	"a key without quotes":                    {`{model:"m"}`, "", CodeInvalidJSON},
	"no colon":                                {`{"model" "m"}`, "", CodeInvalidJSON},
	"a broken number":                         {body(`"seed":01`), "", CodeInvalidJSON},
	"a broken word":                           {body(`"stream":tru`), "stream", CodeInvalidJSON},
	"a value that is none":                    {body(`"x":?`), "x", CodeInvalidJSON},
	"too much nesting":                        {body(`"x":` + strings.Repeat("[", 10_000)), "x", CodeInvalidJSON},
	"too many values":                         {body(`"x":[0` + strings.Repeat(",0", maxValues) + `]`), "x", CodeInvalidJSON},
	"no model":                                {`{"messages":` + hello + `}`, "model", CodeMissing},
	"a model that is null":                    {`{"model":null,"messages":` + hello + `}`, "model", CodeMissing},
	"a model that is a number":                {`{"model":5,"messages":` + hello + `}`, "model", CodeInvalidType},
	"an empty model":                          {`{"model":"","messages":` + hello + `}`, "model", CodeInvalidValue},
	"two models":                              {body(`"model":"n"`), "model", CodeDuplicate},
	"two models, one of them in disguise":     {body(`"mod\u0065l":"n"`), "model", CodeDuplicate},
	"two lists of messages":                   {body(`"messages":` + hello), "messages", CodeDuplicate},
	"no messages":                             {`{"model":"m"}`, "messages", CodeMissing},
	"messages that are null":                  {conversation("null"), "messages", CodeMissing},
	"messages that are a string":              {conversation(`"hi"`), "messages", CodeInvalidType},
	"messages without a message":              {conversation("[]"), "messages", CodeInvalidValue},
	"too many messages":                       {conversation("[" + strings.Repeat(hello[1:len(hello)-1]+",", MaxMessages) + hello[1:]), "messages", CodeInvalidValue},
	"a message that is a string":              {conversation(`["hi"]`), "messages[0]", CodeInvalidType},
	"a message without a role":                {conversation(`[{"content":"hi"}]`), "messages[0].role", CodeMissing},
	"a role that nobody knows":                {conversation(`[{"role":"user2","content":"hi"}]`), "messages[0].role", CodeInvalidValue},
	"a role that is a number":                 {conversation(`[{"role":1,"content":"hi"}]`), "messages[0].role", CodeInvalidType},
	"two roles":                               {conversation(`[{"role":"user","role":"system","content":"hi"}]`), "messages[0].role", CodeDuplicate},
	"two contents":                            {conversation(`[{"role":"user","content":"a","content":"b"}]`), "messages[0].content", CodeDuplicate},
	"a user without content":                  {conversation(`[{"role":"user"}]`), "messages[0].content", CodeMissing},
	"a user with null content":                {conversation(`[{"role":"user","content":null}]`), "messages[0].content", CodeMissing},
	"an assistant with neither":               {conversation(`[{"role":"assistant","content":null,"tool_calls":[ ]}]`), "messages[0].content", CodeMissing},
	"content that is a number":                {conversation(`[{"role":"user","content":1}]`), "messages[0].content", CodeInvalidType},
	"content without parts":                   {conversation(`[{"role":"user","content":[]}]`), "messages[0].content", CodeMissing},
	"an image":                                {conversation(`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"http://x"}}]}]`), "messages[0].content[1]", CodeUnsupportedParameter},
	"sound":                                   {conversation(`[{"role":"user","content":[{"type":"input_audio"}]}]`), "messages[0].content[0]", CodeUnsupportedParameter},
	"a part that is a string":                 {conversation(`[{"role":"user","content":["a"]}]`), "messages[0].content[0]", CodeInvalidType},
	"a part without a type":                   {conversation(`[{"role":"user","content":[{"text":"a"}]}]`), "messages[0].content[0].type", CodeMissing},
	"a text part without text":                {conversation(`[{"role":"user","content":[{"type":"text"}]}]`), "messages[0].content[0].text", CodeMissing},
	"a text part with a number":               {conversation(`[{"role":"user","content":[{"type":"text","text":1}]}]`), "messages[0].content[0].text", CodeInvalidType},
	"tool calls that are a string":            {conversation(`[{"role":"assistant","tool_calls":"x"}]`), "messages[0].tool_calls", CodeInvalidType},
	"text that is not UTF-8":                  {conversation(`[{"role":"user","content":"a` + "\xff" + `"}]`), "messages[0].content", CodeInvalidJSON},
	"half a surrogate pair":                   {conversation(`[{"role":"user","content":"a\ud83d"}]`), "messages[0].content", CodeInvalidJSON},
	"the other half of a surrogate pair":      {conversation(`[{"role":"user","content":"a\ude00"}]`), "messages[0].content", CodeInvalidJSON},
	"a surrogate pair of two first halves":    {conversation(`[{"role":"user","content":"\ud83d\ud83d"}]`), "messages[0].content", CodeInvalidJSON},
	"a NUL character":                         {conversation(`[{"role":"user","content":"a\u0000"}]`), "messages[0].content", CodeInvalidJSON},
	"a line break in a string":                {conversation("[{\"role\":\"user\",\"content\":\"a\n\"}]"), "messages[0].content", CodeInvalidJSON},
	"an unknown escape":                       {conversation(`[{"role":"user","content":"\x"}]`), "messages[0].content", CodeInvalidJSON},
	"a string without an end":                 {`{"model":"m`, "model", CodeInvalidJSON},
	"max_tokens of 0":                         {body(`"max_tokens":0`), "max_tokens", CodeInvalidValue},
	"max_tokens below 0":                      {body(`"max_tokens":-1`), "max_tokens", CodeInvalidValue},
	"max_tokens beyond any context":           {body(`"max_tokens":99999999999`), "max_tokens", CodeInvalidValue},
	"max_tokens beyond 64 bits":               {body(`"max_tokens":99999999999999999999`), "max_tokens", CodeInvalidValue},
	"max_tokens with a fraction":              {body(`"max_tokens":1.5`), "max_tokens", CodeInvalidType},
	"max_tokens as a string":                  {body(`"max_tokens":"5"`), "max_tokens", CodeInvalidType},
	"max_completion_tokens of 0":              {body(`"max_completion_tokens":0`), "max_completion_tokens", CodeInvalidValue},
	"temperature as a string":                 {body(`"temperature":"x"`), "temperature", CodeInvalidType},
	"temperature below 0":                     {body(`"temperature":-0.1`), "temperature", CodeInvalidValue},
	"temperature above 2":                     {body(`"temperature":2.1`), "temperature", CodeInvalidValue},
	"temperature without bounds":              {body(`"temperature":1e400`), "temperature", CodeInvalidValue},
	"top_p of 0":                              {body(`"top_p":0`), "top_p", CodeInvalidValue},
	"top_p above 1":                           {body(`"top_p":1.01`), "top_p", CodeInvalidValue},
	"top_p as an array":                       {body(`"top_p":[1]`), "top_p", CodeInvalidType},
	"a seed with a fraction":                  {body(`"seed":0.5`), "seed", CodeInvalidType},
	"stream as a string":                      {body(`"stream":"true"`), "stream", CodeInvalidType},
	"stream_options as a boolean":             {body(`"stream_options":true`), "stream_options", CodeInvalidType},
	"include_usage as a number":               {body(`"stream_options":{"include_usage":1}`), "stream_options.include_usage", CodeInvalidType},
	"five stops":                              {body(`"stop":["a","b","c","d","e"]`), "stop", CodeInvalidValue},
	"an empty stop":                           {body(`"stop":""`), "stop", CodeInvalidValue},
	"an empty stop in a list":                 {body(`"stop":["a",""]`), "stop[1]", CodeInvalidValue},
	"a stop that is a number":                 {body(`"stop":["a",1]`), "stop[1]", CodeInvalidType},
	"a stop that is null in a list":           {body(`"stop":[null]`), "stop[0]", CodeInvalidType},
	"a stop of 257 bytes":                     {body(`"stop":"` + strings.Repeat("a", 257) + `"`), "stop", CodeInvalidValue},
	"a stop that is an object":                {body(`"stop":{}`), "stop", CodeInvalidType},
	"a user that is a number":                 {body(`"user":1`), "user", CodeInvalidType},
	"a conversation that is a number":         {body(`"conversation":1`), "conversation", CodeInvalidType},
	"a conversation whose id is a number":     {body(`"conversation":{"id":1}`), "conversation.id", CodeInvalidType},
	"no answer":                               {body(`"n":0`), "n", CodeInvalidValue},
	"nine answers":                            {body(`"n":9`), "n", CodeInvalidValue},
	"tools as an object":                      {body(`"tools":{}`), "tools", CodeInvalidType},
	"a tool that is no function":              {body(`"tools":[{"type":"web_search"}]`), "tools[0].type", CodeUnsupportedParameter},
	"a tool without a function":               {body(`"tools":[{"type":"function"}]`), "tools[0].function", CodeMissing},
	"a tool without a name":                   {body(`"tools":[{"type":"function","function":{}}]`), "tools[0].function.name", CodeInvalidValue},
	"a tool with a bad name":                  {body(`"tools":[{"type":"function","function":{"name":"a b"}}]`), "tools[0].function.name", CodeInvalidValue},
	"a tool whose parameters are a list":      {body(`"tools":[{"type":"function","function":{"name":"f","parameters":[]}}]`), "tools[0].function.parameters", CodeInvalidType},
	"129 tools":                               {body(`"tools":[` + strings.Repeat(oneTool+",", 128) + oneTool + `]`), "tools", CodeInvalidValue},
	"a tool that must not be called twice":    {body(`"parallel_tool_calls":false`), "parallel_tool_calls", CodeUnsupportedParameter},
	"a format without a type":                 {body(`"response_format":{}`), "response_format.type", CodeInvalidValue},
	"a format that nobody knows":              {body(`"response_format":{"type":"xml"}`), "response_format.type", CodeInvalidValue},
	"a format as a string":                    {body(`"response_format":"json_object"`), "response_format", CodeInvalidType},
	"a schema that is missing":                {body(`"response_format":{"type":"json_schema"}`), "response_format.json_schema", CodeMissing},
	"logprobs as a number":                    {body(`"logprobs":5`), "logprobs", CodeInvalidType},
	"21 top_logprobs":                         {body(`"logprobs":true,"top_logprobs":21`), "top_logprobs", CodeInvalidValue},
	"top_logprobs without logprobs":           {body(`"top_logprobs":2`), "top_logprobs", CodeInvalidValue},
	"logit_bias as a list":                    {body(`"logit_bias":[1]`), "logit_bias", CodeInvalidType},
	"logit_bias of a word":                    {body(`"logit_bias":{"hello":1}`), "logit_bias.hello", CodeInvalidValue},
	"logit_bias beyond its bounds":            {body(`"logit_bias":{"5":101}`), "logit_bias.5", CodeInvalidValue},
	"frequency_penalty above 2":               {body(`"frequency_penalty":2.5`), "frequency_penalty", CodeInvalidValue},
	"presence_penalty below -2":               {body(`"presence_penalty":-3`), "presence_penalty", CodeInvalidValue},
	"a repetition_penalty of 0":               {body(`"repetition_penalty":0`), "repetition_penalty", CodeInvalidValue},
	"a min_p above 1":                         {body(`"min_p":1.5`), "min_p", CodeInvalidValue},
	"a top_k of -2":                           {body(`"top_k":-2`), "top_k", CodeInvalidValue},
	"more min_tokens than max_tokens":         {body(`"min_tokens":9,"max_tokens":8`), "min_tokens", CodeInvalidValue},
	"a tool that must be called":              {body(`"tool_choice":"required"`), "tool_choice", CodeUnsupportedParameter},
	"a penalty that is a string":              {body(`"presence_penalty":"0"`), "presence_penalty", CodeInvalidType},
	"a long value of an unsupported one":      {body(`"best_of":` + strings.Repeat("1", 100)), "best_of", CodeUnsupportedParameter},
	"a grammar":                               {body(`"guided_json":{}`), "guided_json", CodeUnsupportedParameter},
	"a broken value of an ignored parameter":  {body(`"metadata":{"a":}`), "metadata", CodeInvalidJSON},
	"a broken value of an unsupported one":    {body(`"functions":[}`), "functions", CodeInvalidJSON},
	"a broken value where a type is expected": {body(`"temperature":[}`), "temperature", CodeInvalidJSON},
}

const oneTool = `{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}`

func TestABadBodyIsRefusedWithItsParameter(t *testing.T) {
	for name, c := range refusals {
		t.Run(name, func(t *testing.T) {
			req, err := ParseChat([]byte(c.body))
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("accepted as %+v", req)
			}
			if e.Param != c.param && !(c.code == CodeInvalidJSON && c.param == "") || e.Code != c.code {
				t.Errorf("param %q code %q, want %q %q (%s)", e.Param, e.Code, c.param, c.code, e.Message)
			}
			if e.Type != InvalidRequest || e.Message == "" {
				t.Errorf("type %q message %q", e.Type, e.Message)
			}
		})
	}
}

var acceptances = map[string]struct {
	body  string
	check func(*ChatRequest) bool
}{
	"the least": {body(""), func(r *ChatRequest) bool {
		return r.Model == "m" && string(r.Messages) == hello && !r.Stream && r.MaxTokens == 0
	}},
	"nulls are absent":            {body(`"max_tokens":null,"temperature":null,"stop":null,"n":null,"stream":null,"stream_options":null,"tools":null,"user":null`), func(r *ChatRequest) bool { return r.MaxTokens == 0 && r.Temperature == nil && r.Stop == nil }},
	"sampling":                    {body(`"temperature":0,"top_p":1e0,"seed":-7`), func(r *ChatRequest) bool { return *r.Temperature == 0 && *r.TopP == 1 && *r.Seed == -7 }},
	"the newer limit wins":        {body(`"max_completion_tokens":5,"max_tokens":9`), func(r *ChatRequest) bool { return r.MaxTokens == 5 }},
	"one stop":                    {body(`"stop":"\nUser:"`), func(r *ChatRequest) bool { return len(r.Stop) == 1 && r.Stop[0] == "\nUser:" }},
	"four stops":                  {body(`"stop":["a","b","ü","😀"]`), func(r *ChatRequest) bool { return len(r.Stop) == 4 && r.Stop[3] == "😀" }},
	"no stops":                    {body(`"stop":[]`), func(r *ChatRequest) bool { return len(r.Stop) == 0 }},
	"a stream with usage":         {body(`"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}`), func(r *ChatRequest) bool { return r.Stream && r.IncludeUsage }},
	"a stream with empty options": {body(`"stream":true,"stream_options":{}`), func(r *ChatRequest) bool { return r.Stream && !r.IncludeUsage }},
	"usage that is null":          {body(`"stream_options":{"include_usage":null}`), func(r *ChatRequest) bool { return !r.IncludeUsage }},
	"names of a conversation": {body(`"user":"u","prompt_cache_key":"k","conversation":{"id":"c"},"previous_response_id":"p"`), func(r *ChatRequest) bool {
		return r.User+r.PromptCacheKey+r.Conversation+r.PreviousResponseID == "ukcp"
	}},
	"a conversation by its id": {body(`"conversation":"c"`), func(r *ChatRequest) bool { return r.Conversation == "c" }},
	"what changes nothing":     {body(`"metadata":{"a":"b"},"store":true,"service_tier":"flex","safety_identifier":"x","parallel_tool_calls":true,"whatever":[{}]`), func(r *ChatRequest) bool { return true }},
	"every sampling parameter": {body(`"top_k":40,"min_p":0.1,"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.2,"logit_bias":{"5":-100,"7":2.5}`), func(r *ChatRequest) bool {
		return *r.TopK == 40 && *r.MinP == 0.1 && *r.PresencePenalty == 1 && *r.FrequencyPenalty == -1 && *r.RepetitionPenalty == 1.2 &&
			len(r.LogitBias) == 2 && r.LogitBias[5] == -100 && r.LogitBias[7] == 2.5
	}},
	"several choices with logprobs": {body(`"n":3,"logprobs":true,"top_logprobs":5,"min_tokens":2,"ignore_eos":true`), func(r *ChatRequest) bool {
		return r.Choices == 3 && r.Logprobs && r.TopLogprobs == 5 && r.MinTokens == 2 && r.IgnoreEOS
	}},
	"tools, byte for byte":   {body(`"tools":[ ` + oneTool + `]`), func(r *ChatRequest) bool { return string(r.Tools) == "[ "+oneTool+"]" }},
	"tools that mustn't run": {body(`"tools":[` + oneTool + `],"tool_choice":"none"`), func(r *ChatRequest) bool { return r.Tools == nil }},
	"an answer in JSON":      {body(`"response_format":{"type":"json_object"}`), func(r *ChatRequest) bool { return r.Format == FormatJSONObject }},
	"an answer by a schema":  {body(`"response_format":{"json_schema":{"name":"x"},"type":"json_schema"}`), func(r *ChatRequest) bool { return r.Format == FormatJSONSchema && string(r.Schema) == `{"name":"x"}` }},
	"what asks for nothing": {body(`"n":1,"tools":[ ],"tool_choice":"auto","response_format":{ "type" : "text" },"frequency_penalty":0.0,"top_k":-1,"logprobs":false`), func(r *ChatRequest) bool {
		return r.Choices == 1 && r.Tools == nil && r.Format == FormatText && *r.TopK == 0
	}},
	"a model name with an escape":     {`{"model":"a\/b","messages":` + hello + `}`, func(r *ChatRequest) bool { return r.Model == "a/b" }},
	"white space everywhere":          {" {\t\"model\" : \"m\" ,\n\"messages\" : [ { \"role\" : \"user\" , \"content\" : \"x\" } ] } ", func(r *ChatRequest) bool { return string(r.Messages) == `[ { "role" : "user" , "content" : "x" } ]` }},
	"text parts":                      {conversation(`[{"role":"user","content":[{"type":"text","text":"a"},{"text":"b","type":"text"}]}]`), func(r *ChatRequest) bool { return true }},
	"tool calls need no content":      {conversation(`[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},{"role":"tool","tool_call_id":"1","content":"4"}]`), func(r *ChatRequest) bool { return true }},
	"tool calls with empty content":   {conversation(`[{"role":"assistant","content":[],"tool_calls":[{"id":"1"}]}]`), func(r *ChatRequest) bool { return true }},
	"an empty string is content":      {conversation(`[{"role":"user","content":""}]`), func(r *ChatRequest) bool { return true }},
	"a surrogate pair":                {conversation(`[{"role":"user","content":"\ud83d\ude00"}]`), func(r *ChatRequest) bool { return true }},
	"the beginning ends with a user":  {conversation(`[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"a"}]`), func(r *ChatRequest) bool { return string(bytes.Join(r.Leading, []byte(" "))) == `system "s" user "u"` }},
	"without a user all is beginning": {conversation(`[{"role":"system","content":"s"},{"role":"assistant","content":"a"}]`), func(r *ChatRequest) bool { return len(r.Leading) == 4 }},
}

func TestAGoodBodyIsRead(t *testing.T) {
	for name, c := range acceptances {
		t.Run(name, func(t *testing.T) {
			req, err := ParseChat([]byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if !c.check(req) {
				t.Errorf("read as %+v", req)
			}
		})
	}
}

func BenchmarkParseChat16KB(b *testing.B) {
	turn := `{"role":"user","content":"` + strings.Repeat("All work and no play makes Jack a dull boy. ", 36) + `"},{"role":"assistant","content":"Yes."}`
	in := []byte(conversation("[" + strings.Repeat(turn+",", 9) + hello[1:]))
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseChat(in); err != nil {
			b.Fatal(err)
		}
	}
}
