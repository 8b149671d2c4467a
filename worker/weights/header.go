package weights

import (
	"errors"
	"io"

	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/worker/engine"
)

// Header is what the head of a GGUF file says.
type Header = modelfile.GGUF

// reasons are those of engine.LoadError by what is wrong with a file.
var reasons = map[modelfile.Problem]string{
	modelfile.Unreadable: NotFound, modelfile.Foreign: NotGGUF, modelfile.Damaged: NotGGUF,
	modelfile.Truncated: Truncated, modelfile.Unsupported: Unsupported,
}

// ReadHeader reads the head of a GGUF file of size bytes from r and refuses a part of a model: the other parts would be
// loaded unchecked. name stands for the file in messages. The error is an *engine.LoadError.
func ReadHeader(r io.ReaderAt, name string, size uint64) (*Header, error) {
	h, err := modelfile.ReadGGUF(r, int64(size))
	if err != nil {
		return nil, refusal(name, err)
	}
	if h.Parts > 1 {
		return nil, refuse(Unsupported, "the weights file %s is one of %d parts; expected a whole model: merge the parts", name, h.Parts)
	}
	return h, nil
}

// refusal makes of an error of modelfile what the model's status shows.
func refusal(name string, err error) *engine.LoadError {
	var e *modelfile.Error
	if errors.As(err, &e) {
		return refuse(reasons[e.Problem], "the weights file %s %s", name, e.Says)
	}
	return refuse(NotFound, "the weights file %s can't be read: %v", name, err)
}

// TensorType returns how many numbers a block of the GGUF tensor type holds and its bytes; ok is false for unknown types.
func TensorType(number uint32) (block, bytes uint64, ok bool) { return modelfile.TensorType(number) }
