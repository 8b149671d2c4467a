package modelfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// reader walks over the head of one GGUF file. It never allocates what the file claims before the bytes are there.
type reader struct {
	r    *bufio.Reader
	size uint64 // of the file
	at   uint64 // bytes read
	kept uint64 // bytes of values kept
	buf  [8]byte
}

func newReader(r io.ReaderAt, size uint64) *reader {
	return &reader{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, int64(size)), 1<<16), size: size}
}

// malformed is a head that contradicts the format.
type malformed string

func (m malformed) Error() string { return string(m) }

// refusal makes of err what a user can act on.
func (r *reader) refusal(err error) error {
	var refused *Error
	var bad malformed
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &bad):
		return refuse(Damaged, "is damaged at byte %d of %d: %s", r.at, r.size, string(bad))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(Truncated, "is cut off within its head: expected more than %d bytes, found %d", max(r.at, r.size), r.size)
	}
	return refuse(Unreadable, "can't be read at byte %d: %v", r.at, cause(err))
}

// count reads how many things follow. Each takes more than eight bytes, so the file's length bounds it too.
func (r *reader) count(what string, limit uint64) (uint64, error) {
	n, err := r.u64()
	if err == nil && n > limit {
		return 0, malformed(fmt.Sprintf("it claims %d %s, expected at most %d", n, what, limit))
	}
	return n, err
}

func (r *reader) u32() (uint32, error) {
	if err := r.fill(4); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(r.buf[:4]), nil
}

func (r *reader) u64() (uint64, error) {
	if err := r.fill(8); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(r.buf[:8]), nil
}

// bits reads a value of a fixed width, negative whole numbers with their sign extended.
func (r *reader) bits(kind uint32) (uint64, error) {
	clear(r.buf[:])
	if err := r.fill(int(widths[kind])); err != nil {
		return 0, err
	}
	v := binary.LittleEndian.Uint64(r.buf[:])
	switch kind {
	case valueInt8:
		v = uint64(int8(v))
	case valueInt16:
		v = uint64(int16(v))
	case valueInt32:
		v = uint64(int32(v))
	}
	return v, nil
}

// fill reads n ≤ 8 bytes into r.buf.
func (r *reader) fill(n int) error {
	read, err := io.ReadFull(r.r, r.buf[:n])
	r.at += uint64(read)
	return err
}

// str reads a string of at most limit bytes.
func (r *reader) str(limit uint64) (string, error) {
	n, err := r.u64()
	if err != nil {
		return "", err
	}
	if n > limit {
		return "", malformed(fmt.Sprintf("a name has %d bytes, expected at most %d", n, limit))
	}
	return r.text(n)
}

// text reads n bytes of UTF-8.
func (r *reader) text(n uint64) (string, error) {
	if n > r.size-r.at { // before allocating
		return "", io.ErrUnexpectedEOF
	}
	b := make([]byte, n)
	read, err := io.ReadFull(r.r, b)
	r.at += uint64(read)
	if err == nil && !utf8.Valid(b) {
		return "", malformed("a name is not UTF-8")
	}
	return string(b), err
}

// discard reads over n bytes.
func (r *reader) discard(n uint64) error {
	if n > r.size-r.at {
		return io.ErrUnexpectedEOF
	}
	for n > 0 {
		step := int(min(n, 1<<30))
		skipped, err := r.r.Discard(step)
		r.at += uint64(skipped)
		n -= uint64(skipped)
		if err != nil {
			return err
		}
	}
	return nil
}
