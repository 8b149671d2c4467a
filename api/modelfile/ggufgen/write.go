package ggufgen

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
)

// alignment of tensor data, the format's default.
const alignment = 32

// entry is one of metadata.
type entry struct {
	key   string
	value value
}

// numberType is how a type stores numbers: block of them in bytes bytes.
type numberType struct {
	number       uint32
	block, bytes int
}

var types = map[string]numberType{"F32": {0, 1, 4}, "F16": {1, 1, 2}, "Q4_0": {2, 32, 18}, "Q8_0": {8, 32, 34}}

// WriteTo writes the file of m.
func (m *Model) WriteTo(w io.Writer) (int64, error) {
	head, err := m.head()
	if err != nil {
		return 0, err
	}
	c := &counter{w: bufio.NewWriterSize(w, 1<<16)}
	_, err = c.Write(head)
	random := source(m.Seed)
	for _, t := range m.tensors() {
		if err == nil {
			err = m.fill(c, t, &random)
		}
		if err == nil {
			_, err = c.Write(make([]byte, padding(c.n)))
		}
	}
	return c.n, errors.Join(err, c.w.Flush())
}

// WriteFile writes the file of m to path. Without a seed the tensor data is a hole, which takes no disk space on file
// systems that have holes.
func (m *Model) WriteFile(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if m.Seed != 0 {
		_, err = m.WriteTo(f)
		return err
	}
	head, err := m.head()
	if err != nil {
		return err
	}
	if _, err := f.Write(head); err != nil {
		return err
	}
	return f.Truncate(int64(len(head)) + m.dataBytes())
}

// dataBytes is the length of the tensor data, each tensor padded.
func (m *Model) dataBytes() int64 {
	var n int64
	for _, t := range m.tensors() {
		n += m.bytes(t)
		n += padding(n)
	}
	return n
}

// bytes is the size of t in the file.
func (m *Model) bytes(t tensor) int64 {
	of := types[t.kind(m.Type)]
	return int64(t.elements()/of.block) * int64(of.bytes)
}

// padding is how many bytes are missing to the next aligned place after n.
func padding(n int64) int64 { return -n & (alignment - 1) }

// head returns everything before the tensor data, padding included.
func (m *Model) head() ([]byte, error) {
	if err := m.validate(); err != nil {
		return nil, err
	}
	tensors, metadata := m.tensors(), m.metadata()
	b := append([]byte("GGUF"), 3, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(metadata)))
	for _, e := range metadata {
		b = e.value.append(appendString(b, e.key))
	}
	var offset int64
	for _, t := range tensors {
		b = binary.LittleEndian.AppendUint32(appendString(b, t.name), uint32(len(t.dims)))
		for _, d := range t.dims {
			b = binary.LittleEndian.AppendUint64(b, uint64(d))
		}
		b = binary.LittleEndian.AppendUint32(b, types[t.kind(m.Type)].number)
		b = binary.LittleEndian.AppendUint64(b, uint64(offset))
		offset += m.bytes(t)
		offset += padding(offset)
	}
	return append(b, make([]byte, padding(int64(len(b))))...), nil
}

// counter counts what is written through it.
type counter struct {
	w *bufio.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
