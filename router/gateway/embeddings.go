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
	// Worker is the pod that made them.
	Worker string
}

// errAdapterEmbeds: workers make embeddings by the model itself only.
var errAdapterEmbeds = &openai.Error{Type: openai.InvalidRequest, Code: openai.CodeInvalidValue, Param: "model",
	Message: "There are no embeddings of an adapter. Ask for its model: GET /v1/models has it as the adapter's parent."}

// embed serves POST /v1/embeddings.
func (x *exchange) embed() error {
	x.measured = true
	body, err := x.body()
	if err != nil {
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
		ModelUID: m.UID, RequestID: x.id, Key: embeddingKey(x.r.Header.Get(telemetry.HeaderSession), req), FirstByte: s.firstByte, Embedding: req,
	}
	out, err := x.h.cfg.Generator.Embed(x.r.Context(), call)
	if err != nil {
		return err
	}
	x.worker, x.usage.Prompt = out.Worker, out.PromptTokens
	return x.vectors(out, req)
}

// vectorBytes is about how many bytes are written at once.
const vectorBytes = 64 << 10

// vectors answers with the embeddings, piece by piece: as JSON they are several times as large. Their memory counts with
// that of the bodies, since a slow client holds them for long.
func (x *exchange) vectors(out *Embeddings, req *openai.EmbeddingRequest) error {
	var bytes int64
	for _, v := range out.Vectors {
		bytes += 4 * int64(len(v))
	}
	if err := x.hold(x.held + bytes); err != nil {
		return err
	}
	x.w.Header().Set(telemetry.HeaderWorker, out.Worker)
	x.head(http.StatusOK)
	buf := openai.AppendEmbeddingsHead(make([]byte, 0, vectorBytes+vectorBytes/2))
	for i, v := range out.Vectors {
		if buf = openai.AppendEmbedding(buf, i, v, req.Base64); len(buf) >= vectorBytes {
			if err := x.send(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	return x.send(openai.AppendEmbeddingsTail(buf, req.Model, out.PromptTokens))
}
