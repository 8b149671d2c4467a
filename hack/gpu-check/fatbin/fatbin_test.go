package fatbin

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// file is what is put into a region.
type file struct {
	kind    Kind
	arch    Arch
	payload string
}

// region lays files out.
func region(files ...file) []byte {
	var body []byte
	for _, f := range files {
		f.payload += strings.Repeat(" ", -len(f.payload)&7) // as compilers do
		h := make([]byte, entryHeader)
		binary.LittleEndian.PutUint16(h, uint16(f.kind))
		binary.LittleEndian.PutUint32(h[4:], entryHeader)
		binary.LittleEndian.PutUint64(h[8:], uint64(len(f.payload)))
		binary.LittleEndian.PutUint32(h[28:], uint32(f.arch))
		body = append(append(body, h...), f.payload...)
	}
	h := make([]byte, regionHeader)
	binary.LittleEndian.PutUint32(h, regionMagic)
	binary.LittleEndian.PutUint16(h[6:], regionHeader)
	binary.LittleEndian.PutUint64(h[8:], uint64(len(body)))
	return append(h, body...)
}

// library is an ELF file with one section of kernels, and a name for it.
func library(name string, kernels []byte) []byte {
	names := "\x00" + name + "\x00.shstrtab\x00"
	const header, sectionHeader = 64, 64
	at := header + 3*sectionHeader
	b := make([]byte, at)
	copy(b, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(b[16:], uint16(elf.ET_DYN))
	le.PutUint16(b[18:], uint16(elf.EM_X86_64))
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[40:], header)
	le.PutUint16(b[52:], header)
	le.PutUint16(b[58:], sectionHeader)
	le.PutUint16(b[60:], 3)
	le.PutUint16(b[62:], 2)
	put := func(i int, name uint32, kind elf.SectionType, offset, size int) {
		s := b[header+i*sectionHeader:]
		le.PutUint32(s, name)
		le.PutUint32(s[4:], uint32(kind))
		le.PutUint64(s[24:], uint64(offset))
		le.PutUint64(s[32:], uint64(size))
	}
	put(1, 1, elf.SHT_PROGBITS, at, len(kernels))
	put(2, uint32(len(name)+2), elf.SHT_STRTAB, at+len(kernels), len(names))
	return slices.Concat(b, kernels, []byte(names))
}

var every = []file{{PTX, 75, "ptx 75"}, {PTX, 80, "ptx 80 is longer"}, {Machine, 86, "code 86"}, {Machine, 89, "code 89"}, {PTX, 90, "ptx 90"},
	{Machine, 120, "code 120"}}

func TestWhatOneGenerationLoadsIsKept(t *testing.T) {
	whole := region(every...)
	for gpu, want := range map[Arch]string{75: "ptx 75", 80: "ptx 80 is longer", 86: "code 86", 87: "code 86", 89: "code 89", 90: "ptx 90",
		100: "ptx 90", 120: "code 120", 121: "code 120"} {
		b := library(section, slices.Concat(whole, make([]byte, 8), whole))
		out, sum, err := Thin(b, gpu)
		if err != nil {
			t.Errorf("%d: %v", gpu, err)
			continue
		}
		if len(out) != len(b) || sum.Regions != 2 || sum.Kept != 2 || sum.Dropped != 12 || sum.After != uint64(2*(entryHeader+(len(want)+7)&^7)) ||
			(sum.Machine == 2) != strings.HasPrefix(want, "code") {
			t.Errorf("%d: %+v", gpu, sum)
		}
		for _, f := range every {
			if n := bytes.Count(out, []byte(f.payload)); (n == 2) != (f.payload == want) || n == 1 {
				t.Errorf("%d: %q is there %d times", gpu, f.payload, n)
			}
		}
		// What is left is a whole library again.
		if again, _, err := Thin(out, gpu); err != nil || !bytes.Equal(again, out) {
			t.Errorf("%d: thinned again: %v", gpu, err)
		}
	}
}

func TestFilesOfAnotherLayoutAreRefused(t *testing.T) {
	cut := func(change func([]byte)) []byte {
		b := region(every...)
		change(b)
		return library(section, b)
	}
	for name, c := range map[string]struct {
		library []byte
		gpu     Arch
		says    string
	}{
		"no ELF":                  {make([]byte, 100), 90, "bad magic"},
		"no kernels":              {library(".text", region(every...)), 90, "no section .nv_fatbin"},
		"an empty section":        {library(section, make([]byte, 64)), 90, "is empty"},
		"another magic":           {cut(func(b []byte) { b[0]++ }), 90, "expected 0xba55ed50"},
		"a region that is longer": {cut(func(b []byte) { b[10]++ }), 90, "claims to have"},
		"an entry that is longer": {cut(func(b []byte) { b[regionHeader+10]++ }), 90, "entry 0 claims"},
		"an entry of no header":   {cut(func(b []byte) { b[regionHeader+4] = 8 }), 90, "behind a header of 8"},
		"an unknown kind":         {cut(func(b []byte) { b[regionHeader] = 9 }), 90, "of kind 9"},
		"nothing for the GPU":     {library(section, region(every...)), 70, "none of its 6 entries is for a GPU of capability 70"},
	} {
		if _, _, err := Thin(c.library, c.gpu); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

func FuzzThin(f *testing.F) {
	f.Add(region(every...), uint32(90))
	f.Add([]byte{}, uint32(0))
	f.Fuzz(func(t *testing.T, kernels []byte, gpu uint32) {
		b := library(section, kernels)
		out, _, err := Thin(b, Arch(gpu))
		if err == nil && len(out) != len(b) {
			t.Errorf("%d bytes became %d", len(b), len(out))
		}
	})
}
