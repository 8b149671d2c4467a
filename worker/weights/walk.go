package weights

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// cutContext returns the architecture of a key such as llama.context_length.
func cutContext(key string) (string, bool) {
	return strings.CutSuffix(key, ".context_length")
}

// count reads how many things follow. Each takes more than eight bytes, so the file's length bounds it too.
func (p *parser) count(what string, limit uint64) (uint64, error) {
	n, err := p.u64()
	if err == nil && n > limit {
		return 0, malformed(fmt.Sprintf("it claims %d %s, expected at most %d", n, what, limit))
	}
	return n, err
}

func (p *parser) u32() (uint32, error) {
	if err := p.fill(4); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(p.buf[:4]), nil
}

func (p *parser) u64() (uint64, error) {
	if err := p.fill(8); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(p.buf[:8]), nil
}

// number reads a whole number of any width. Negative ones become large.
func (p *parser) number(kind uint32) (uint64, error) {
	clear(p.buf[:])
	if err := p.fill(int(widths[kind])); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(p.buf[:8]), nil
}

// fill reads n ≤ 8 bytes into p.buf.
func (p *parser) fill(n int) error {
	read, err := io.ReadFull(p.r, p.buf[:n])
	p.at += uint64(read)
	return err
}

// str reads a string of at most limit bytes.
func (p *parser) str(limit uint64) (string, error) {
	n, err := p.u64()
	if err != nil {
		return "", err
	}
	if n > limit {
		return "", malformed(fmt.Sprintf("a name has %d bytes, expected at most %d", n, limit))
	}
	if n > p.size { // before allocating
		return "", io.ErrUnexpectedEOF
	}
	b := make([]byte, n)
	read, err := io.ReadFull(p.r, b)
	p.at += uint64(read)
	if err == nil && !utf8.Valid(b) {
		return "", malformed("a name is not UTF-8")
	}
	return string(b), err
}

// skip reads over a value.
func (p *parser) skip(kind uint32, depth int) error {
	switch {
	case kind == valueString:
		n, err := p.u64()
		if err != nil {
			return err
		}
		return p.discard(n)
	case kind == valueArray:
		return p.skipArray(depth)
	case kind > valueFloat64:
		return malformed(fmt.Sprintf("a value has type %d, expected at most %d", kind, valueFloat64))
	}
	return p.discard(widths[kind])
}

func (p *parser) skipArray(depth int) error {
	if depth >= maxNesting {
		return malformed(fmt.Sprintf("arrays nest deeper than %d", maxNesting))
	}
	kind, err := p.u32()
	if err != nil {
		return err
	}
	n, err := p.count("elements of an array", maxArray)
	if err != nil {
		return err
	}
	if kind <= valueFloat64 && widths[kind] > 0 {
		return p.discard(n * widths[kind])
	}
	for range n { // each element takes at least eight bytes, so the end of the file bounds this
		if err := p.skip(kind, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// discard reads over n bytes.
func (p *parser) discard(n uint64) error {
	if n > p.size {
		return io.ErrUnexpectedEOF
	}
	for n > 0 {
		step := int(min(n, 1<<30))
		skipped, err := p.r.Discard(step)
		p.at += uint64(skipped)
		n -= uint64(skipped)
		if err != nil {
			return err
		}
	}
	return nil
}
