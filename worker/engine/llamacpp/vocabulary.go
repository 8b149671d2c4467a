package llamacpp

import (
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hybridgroup/yzma/pkg/llama"
	"github.com/jupiterrider/ffi"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// vocabulary is a model's tokens and chat template. It never touches the context, so it works beside a running step.
type vocabulary struct {
	lib      *library
	template *template
	size     int
	context  int          // most tokens of a prompt
	bos      engine.Token // added to prompts that don't begin with it; -1: none is
	entries  []atomic.Pointer[entryOfToken]
	markup   map[engine.Token][]byte // special tokens that a splitter must see
	stops    map[engine.Token][]byte // special tokens by which the model waits for its tools

	mu     sync.RWMutex // guards handle: held shared by each call into the library
	handle llama.Vocab  // 0 once the model is freed
}

// entryOfToken is what is known of a token that was asked for.
type entryOfToken struct {
	piece []byte
	ends  bool
}

func newVocabulary(lib *library, model llama.Model, context int, log *slog.Logger) *vocabulary {
	handle := llama.ModelGetVocab(model)
	size := int(llama.VocabNTokens(handle))
	v := &vocabulary{lib: lib, size: size, context: context, bos: -1, entries: make([]atomic.Pointer[entryOfToken], size), handle: handle}
	bos := llama.VocabBOS(handle)
	if llama.VocabGetAddBOS(handle) && bos >= 0 && int(bos) < size {
		v.bos = engine.Token(bos)
	}
	v.template = newTemplate(llama.ModelChatTemplate(model, ""), llama.ModelDesc(model),
		llama.VocabGetText(handle, bos), llama.VocabGetText(handle, llama.VocabEOS(handle)))
	if v.template.broken != "" {
		log.Warn("The model's chat template can't be used, so chats are refused", "reason", v.template.broken)
	}
	v.markup, v.stops = v.marks(v.template.dialect.Markup()), v.marks(v.template.dialect.Stops())
	return v
}

// marks finds which of texts are one token.
func (v *vocabulary) marks(texts []string) map[engine.Token][]byte {
	found := map[engine.Token][]byte{}
	for _, text := range texts {
		if out, err := v.tokens(text, true); err == nil && len(out) == 1 {
			found[out[0]] = []byte(text)
		}
	}
	return found
}

// Render implements engine.Vocabulary.
func (v *vocabulary) Render(c engine.Chat) (string, error) { return v.template.render(c) }

// Tokenize implements engine.Vocabulary. Where the model wants its prompts to begin with a token of its own, that is added
// unless text brings it. The library's time grows with the square of some texts' length and can't be cut short, so a text
// far beyond the context is refused by an *engine.InvalidError after a beginning of it has shown that.
func (v *vocabulary) Tokenize(text string, special bool) ([]engine.Token, error) {
	text = strings.ToValidUTF8(text, "\uFFFD") // the library takes other bytes one by one, slowly
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.handle == 0 {
		return nil, fmt.Errorf("tokenize: %w", engine.ErrClosed)
	}
	for n := firstBytes; n < len(text); n *= 2 {
		out, err := v.tokens(strings.ToValidUTF8(text[:n], ""), special)
		if err != nil {
			return nil, err
		}
		if len(out) > v.context+cutTokens {
			return nil, tooLong("the first %d of %d bytes of the prompt are %d tokens, the context holds %d", n, len(text), len(out), v.context)
		}
	}
	out, err := v.tokens(text, special)
	if err == nil && v.bos >= 0 && (len(out) == 0 || out[0] != v.bos) {
		out = slices.Insert(out, 0, v.bos)
	}
	return out, err
}

// tooLong refuses a text without naming a field: only the caller knows what it comes from.
func tooLong(format string, args ...any) error {
	return &engine.InvalidError{Code: engine.CodeContextLength, Message: fmt.Sprintf(format, args...)}
}

// firstBytes is how much of a longer text is tried first, cutTokens how many tokens more a cut may make.
const firstBytes, cutTokens = 1 << 16, 64

// tokens returns the tokens of text, nothing added. The caller holds mu.
func (v *vocabulary) tokens(text string, special bool) ([]engine.Token, error) {
	if len(text) > math.MaxInt32/2 {
		return nil, tooLong("the prompt has %d bytes, expected at most %d", len(text), math.MaxInt32/2)
	}
	// Most texts have three bytes or more to a token. If there are more tokens, the library says how many.
	out := make([]engine.Token, len(text)/3+8)
	n := v.tokenize(text, out, special)
	if n < 0 && n > math.MinInt32 {
		out = make([]engine.Token, -n)
		n = v.tokenize(text, out, special)
	}
	if n < 0 || int(n) > len(out) {
		return nil, fmt.Errorf("tokenize: llama.cpp returned %d for a text of %d bytes", n, len(text))
	}
	return out[:n], nil
}

// tokenize calls the library; a negative result is the number of tokens that out is too short for.
func (v *vocabulary) tokenize(text string, out []engine.Token, special bool) int32 {
	var (
		result     ffi.Arg
		from       = unsafe.StringData(text)
		length     = int32(len(text))
		to         = unsafe.SliceData(out)
		room       = int32(len(out))
		addSpecial = uint8(0)
		parse      = uint8(0)
	)
	if special {
		parse = 1
	}
	if from == nil { // the library reads the address even of no text
		from = new(byte)
	}
	v.lib.tokenize.Call(unsafe.Pointer(&result), unsafe.Pointer(&v.handle), unsafe.Pointer(&from), unsafe.Pointer(&length),
		unsafe.Pointer(&to), unsafe.Pointer(&room), unsafe.Pointer(&addSpecial), unsafe.Pointer(&parse))
	runtime.KeepAlive(text)
	return int32(result)
}

// Piece implements engine.Vocabulary. Of the special tokens those that mark reasoning and calls of tools have bytes. They
// must not be changed.
func (v *vocabulary) Piece(t engine.Token) []byte {
	if e := v.entry(t); e != nil {
		return e.piece
	}
	return nil
}

// EndsGeneration implements engine.Vocabulary. Besides the tokens that the weights name, a model stops by those with which it
// waits for its tools: not all weights name them.
func (v *vocabulary) EndsGeneration(t engine.Token) bool {
	e := v.entry(t)
	return e != nil && e.ends
}

// entry returns what is known of a token, nil for one that is none.
func (v *vocabulary) entry(t engine.Token) *entryOfToken {
	if t < 0 || int(t) >= v.size {
		return nil
	}
	if e := v.entries[t].Load(); e != nil {
		return e
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.handle == 0 {
		return nil
	}
	_, waits := v.stops[t]
	e := &entryOfToken{piece: v.markup[t], ends: waits || llama.VocabIsEOG(v.handle, llama.Token(t))}
	if e.piece == nil {
		e.piece = v.piece(llama.Token(t))
	}
	v.entries[t].Store(e)
	return e
}

func (v *vocabulary) piece(t llama.Token) []byte {
	buf := make([]byte, 32)
	n := llama.TokenToPiece(v.handle, t, buf, 0, false)
	if n < 0 { // too short by design for few
		buf = make([]byte, -n)
		n = llama.TokenToPiece(v.handle, t, buf, 0, false)
	}
	return slices.Clip(buf[:max(n, 0)])
}

// close ends the use of the library. It waits for calls that run.
func (v *vocabulary) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.handle = 0
}
