package gateway

import (
	"net/http"

	"github.com/ringfleet/ringfleet/api/telemetry"
	"github.com/ringfleet/ringfleet/router/openai"
)

// Embeddings are a vector for each input, all of one length and of finite numbers.
type Embeddings struct {
	Vectors      [][]float32
	PromptTokens uint32
	// Worker is the pod that made them, Reason why it was chosen.
	Worker, Reason string
}

// errAdapterEmbeds: workers make embeddings by the model itself only.
var errAdapterEmbeds = &openai.Error{Type: openai.InvalidRequest, Code: openai.CodeInvalidValue, Param: "model",
	Message: "There are no embeddings of an adapter. Ask for its model: GET /v1/models has it as the adapter's parent."}

// copies is how often the inputs are held beside the body.
const copies = 2

// embed serves POST /v1/embeddings.
func (x *exchange) embed() error {
	x.measured = true
	body, err := x.body()
	if err != nil {
		return err
	}
	// The inputs are parsed into memory of their own, and sent from another copy. Neither is larger than the body, but
	// for tokens of few digits, of which there is a bound.
	if err = x.hold(x.held + copies*int64(len(body))); err != nil {
		return err
	}
	req, err := openai.ParseEmbedding(body)
	if err != nil {
		return err
	}
	m, s, err := x.find(req.Model)
	if err != nil {
		return err
	}
	if m.adapter != "" {
		return errAdapterEmbeds
	}
	call := &Call{
		ModelUID: m.UID, RequestID: x.id, Key: embeddingKey(x.r.Header.Get(telemetry.HeaderSession), req), FirstByte: s.settings.FirstByte, Embedding: req,
	}
	if err := x.classify(s, call); err != nil {
		return err
	}
	asked := x.held
	if err = x.hold(asked + answerBytes(len(req.Inputs))); err != nil {
		return err
	}
	out, err := x.h.cfg.Generator.Embed(x.r.Context(), call)
	if err != nil {
		return err
	}
	if err = x.hold(asked + vectorsBytes(out.Vectors)); err != nil {
		return err
	}
	x.worker, x.usage.Prompt = out.Worker, out.PromptTokens
	return x.vectors(out, req)
}

// What an answer is taken to need until it is there.
const (
	mostWidth   = 8192     // numbers in a vector
	mostVectors = 32 << 20 // bytes of an answer, which package upstream holds workers to
	numberBytes = 4
)

// answerBytes is the memory that an answer with n vectors may need when it comes: as it is on the wire, and decoded.
func answerBytes(n int) int64 { return 2 * min(int64(n)*mostWidth*numberBytes, mostVectors) }

// vectorsBytes is the memory that vectors have.
func vectorsBytes(vectors [][]float32) (bytes int64) {
	for _, v := range vectors {
		bytes += numberBytes * int64(len(v))
	}
	return bytes
}

// MostHeld is the most memory that one request holds of Config.MaxBodyBytesTotal, where a body has at most maxBody bytes:
// a request for embeddings, whose body is up to a quarter larger in memory.
func MostHeld(maxBody int64) int64 { return maxBody + maxBody/4 + copies*maxBody + 2*mostVectors }

// writtenBytes is about how many bytes are written at once.
const writtenBytes = 64 << 10

// vectors answers with the embeddings, piece by piece: as JSON they are several times as large. Their memory is held until
// the end, since a slow client may take long.
func (x *exchange) vectors(out *Embeddings, req *openai.EmbeddingRequest) error {
	x.w.Header().Set(telemetry.HeaderWorker, out.Worker)
	x.w.Header().Set(telemetry.HeaderReason, out.Reason)
	x.head(http.StatusOK)
	buf := openai.AppendEmbeddingsHead(make([]byte, 0, writtenBytes+writtenBytes/2))
	for i, v := range out.Vectors {
		if buf = openai.AppendEmbedding(buf, i, v, req.Base64); len(buf) >= writtenBytes {
			if err := x.send(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	if err := x.send(openai.AppendEmbeddingsTail(buf, req.Model, out.PromptTokens)); err != nil {
		return err
	}
	x.sent()
	return nil
}
