// Package modelfile reads what files of models say about themselves: the heads of GGUF and safetensors files and the
// config.json of a Hugging Face repository. It decides whether a head is sound and whether the file is as long as it says,
// and what shape the model has. It reads through an io.ReaderAt or a folder that it is given, and nothing else: finding, fetching
// and hashing files is worker/weights' job, and what a shape costs is memoryplan's.
package modelfile

import (
	"errors"
	"fmt"
	"io/fs"
)

// Problem is why a file can't be used.
type Problem string

// The problems.
const (
	// Unreadable: the reader returned an error of its own.
	Unreadable Problem = "Unreadable"
	// Foreign: the file is of another format.
	Foreign Problem = "Foreign"
	// Damaged: the head contradicts the format or itself.
	Damaged Problem = "Damaged"
	// Truncated: the file is shorter than its head says.
	Truncated Problem = "Truncated"
	// Unsupported: the file is sound, but of a version or kind that isn't known here.
	Unsupported Problem = "Unsupported"
)

// Error is why a file can't be used, with the numbers. It doesn't know the file's name.
type Error struct {
	Problem Problem
	// Says goes on a sentence that begins with the file's name, such as "is cut off: expected 10 bytes, found 9".
	Says string
}

func (e *Error) Error() string { return "the file " + e.Says }

func refuse(p Problem, format string, args ...any) *Error {
	return &Error{Problem: p, Says: fmt.Sprintf(format, args...)}
}

// cause returns err without the path that its reader may have put in.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
