package openai

// Kind is a family of servers that speak OpenAI's protocol, each with endpoints and parameters of its own.
type Kind string

// The kinds.
const (
	VLLM        Kind = "VLLM"
	SGLang      Kind = "SGLang"
	LlamaServer Kind = "LlamaServer"
	// OpenAI is any other server. One that names vLLM, SGLang or llama.cpp as the owner of its models becomes that kind.
	OpenAI Kind = "OpenAI"
)

// Field is a parameter of a request that not every server knows. Temperature, top_p, max_tokens, stop, seed, the penalties
// for presence and frequency, logit_bias and JSON formats are of the protocol itself and go to all of them.
type Field string

// The fields.
const (
	TopK              Field = "top_k"
	MinP              Field = "min_p"
	RepetitionPenalty Field = "repetition_penalty"
	MinTokens         Field = "min_tokens"
	IgnoreEOS         Field = "ignore_eos"
	Priority          Field = "priority"
	CacheSalt         Field = "cache_salt"
	AdapterName       Field = "adapter"
)

// Fields are all of them, in the order of the documentation.
var Fields = []Field{TopK, MinP, RepetitionPenalty, MinTokens, IgnoreEOS, Priority, CacheSalt, AdapterName}

// dropped marks a field that a server doesn't know and that may be left out: it is advice, and the output has the same
// meaning without it. Every other unknown field is refused.
const dropped = "-"

// server is what is known of a kind.
type server struct {
	owner string // owned_by of its models
	// names of the fields in its requests; dropped, or absent: refused.
	names map[Field]string
	// neutral are the values that switch off what the server would do by itself.
	neutral map[string]any
	// lookBack names how many tokens its penalties look back on, where that is less than all by itself.
	lookBack string
	// extra goes into every streamed request.
	extra map[string]any
	// usageWithChunks: it counts in each chunk when it is asked to, so that the prompt's length is known at once.
	usageWithChunks bool
	// unlimited: a text completion with max_tokens null goes on to the end of the context.
	unlimited bool
	// idsByLogprobs: it tells tokens' ids only with their log probabilities, which are therefore asked for always.
	idsByLogprobs bool

	tokenize, template       string // paths; "" where it has none
	properties               string // path of what it says of itself, where that is not in its list of models
	loadAdapter, dropAdapter string
	logprobs                 bool

	// proceed goes with a chat whose last message is the assistant's, for that to be gone on with. A server without it goes on
	// where it renders chats, and so with a text. thought is the field of that message for reasoning; "" where it knows none.
	proceed map[string]any
	thought string
}

// resumes reports whether an output that was begun elsewhere can be gone on with.
func (s *server) resumes() bool { return s.proceed != nil || s.template != "" }

var servers = map[Kind]*server{
	VLLM: {
		owner: "vllm",
		names: map[Field]string{TopK: "top_k", MinP: "min_p", RepetitionPenalty: "repetition_penalty", MinTokens: "min_tokens",
			IgnoreEOS: "ignore_eos", Priority: "priority", CacheSalt: "cache_salt", AdapterName: "model"},
		neutral:         map[string]any{"top_k": 0, "min_p": 0, "repetition_penalty": 1},
		extra:           map[string]any{"return_token_ids": true},
		usageWithChunks: true, unlimited: true, logprobs: true,
		tokenize: "/tokenize", loadAdapter: "/v1/load_lora_adapter", dropAdapter: "/v1/unload_lora_adapter",
		proceed: map[string]any{"continue_final_message": true, "add_generation_prompt": false}, thought: "reasoning",
	},
	SGLang: {
		owner: "sglang",
		names: map[Field]string{TopK: "top_k", MinP: "min_p", RepetitionPenalty: "repetition_penalty", MinTokens: "min_tokens",
			IgnoreEOS: "ignore_eos", Priority: "priority", CacheSalt: "cache_salt", AdapterName: "model"},
		neutral:         map[string]any{"top_k": -1, "min_p": 0, "repetition_penalty": 1},
		extra:           map[string]any{"return_token_ids": true},
		usageWithChunks: true, logprobs: true,
		tokenize: "/tokenize", loadAdapter: "/load_lora_adapter", dropAdapter: "/unload_lora_adapter",
		proceed: map[string]any{"continue_final_message": true},
	},
	LlamaServer: {
		owner: "llamacpp",
		names: map[Field]string{TopK: "top_k", MinP: "min_p", RepetitionPenalty: "repeat_penalty", IgnoreEOS: "ignore_eos",
			Priority: dropped},
		neutral: map[string]any{"top_k": 0, "min_p": 0, "repeat_penalty": 1}, lookBack: "repeat_last_n",
		extra:     map[string]any{"timings_per_token": true, "return_progress": true},
		unlimited: true, idsByLogprobs: true, logprobs: true,
		tokenize: "/tokenize", template: "/apply-template", properties: "/props",
	},
	OpenAI: {
		names:    map[Field]string{Priority: dropped, AdapterName: "model"},
		logprobs: true,
	},
}

// Treatment says what becomes of a field at a kind of server: the name under which it is sent, "dropped" or "refused".
func Treatment(k Kind, f Field) string {
	switch name := servers[k].names[f]; name {
	case "":
		return "refused"
	case dropped:
		return "dropped"
	default:
		return name
	}
}

// kindOf returns the kind of a server whose models have the owner, or OpenAI.
func kindOf(owner string) Kind {
	for k, s := range servers {
		if s.owner != "" && s.owner == owner {
			return k
		}
	}
	return OpenAI
}
