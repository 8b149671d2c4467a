// Package fatbin makes a library of CUDA kernels small enough to carry to one machine. Such a library holds every kernel
// several times: as machine code for some generations of GPUs, and as PTX that the driver compiles for others. Thin keeps
// what one generation uses and leaves out the rest. It changes nothing else, and it never guesses: a file that isn't laid
// out as expected is an error.
package fatbin

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// Arch is a GPU's compute capability, such as 90 for 9.0.
type Arch uint32

// Kind is how a kernel is written.
type Kind uint16

// The kinds, by their numbers in the file.
const (
	PTX     Kind = 1
	Machine Kind = 2 // machine code, an ELF file of its own
)

// The layout of a fat binary, as the files of CUDA 12 and 13 have it: regions of a header and entries, each with a header
// of its own.
const (
	section      = ".nv_fatbin"
	regionMagic  = 0xBA55ED50
	regionHeader = 16 // magic, version, length of the header, length of what follows
	entryHeader  = 64 // the least
)

// Summary says what Thin has found and kept.
type Summary struct {
	// Regions are about the source files of kernels.
	Regions int
	// Kept and Dropped count the entries.
	Kept, Dropped int
	// Machine is how many of the kept ones are machine code; the driver compiles the others when they are first used.
	Machine int
	// Bytes of kernels before and after.
	Before, After uint64
}

// entry is one kernel file within a region.
type entry struct {
	kind Kind
	arch Arch
	data []byte // header and payload
}

// Thin returns a copy of library in which the fat binaries hold what a GPU of the given capability loads, and zeros in
// place of the rest, which compress to nothing.
func Thin(library []byte, gpu Arch) ([]byte, Summary, error) {
	f, err := elf.NewFile(bytes.NewReader(library))
	if err != nil {
		return nil, Summary{}, fmt.Errorf("thin a CUDA library: %w", err)
	}
	s := f.Section(section)
	if s == nil || s.Offset > uint64(len(library)) || s.Size > uint64(len(library))-s.Offset {
		return nil, Summary{}, fmt.Errorf("thin a CUDA library: it has no section %s", section)
	}
	out := bytes.Clone(library)
	var sum Summary
	for all := out[s.Offset:][:s.Size]; ; {
		n, err := thinRegion(all, gpu, &sum)
		if err != nil {
			return nil, Summary{}, fmt.Errorf("thin a CUDA library: region %d: %w", sum.Regions, err)
		}
		if n == 0 {
			break
		}
		sum.Regions++
		all = all[n:]
	}
	if sum.Regions == 0 {
		return nil, Summary{}, fmt.Errorf("thin a CUDA library: section %s is empty", section)
	}
	return out, sum, nil
}

// thinRegion thins the first region of b in place and returns where it ends; 0: there is none.
func thinRegion(b []byte, gpu Arch, sum *Summary) (int, error) {
	start := 0
	for len(b)-start >= regionHeader && binary.LittleEndian.Uint32(b[start:]) == 0 { // padding between regions
		start += 4
	}
	b = b[start:]
	if len(b) < regionHeader {
		return 0, nil
	}
	if magic := binary.LittleEndian.Uint32(b); magic != regionMagic {
		return 0, fmt.Errorf("it begins with %#x, expected %#x", magic, uint32(regionMagic))
	}
	header, size := int(binary.LittleEndian.Uint16(b[6:])), binary.LittleEndian.Uint64(b[8:])
	if header < regionHeader || header > len(b) || size > uint64(len(b)-header) {
		return 0, fmt.Errorf("it claims to have %d bytes behind a header of %d; there are %d", size, header, len(b))
	}
	body := b[header:][:size]
	entries, err := split(body)
	if err != nil {
		return 0, err
	}
	var kept []byte
	for _, e := range choose(entries, gpu) {
		kept = append(kept, e.data...)
		sum.Kept++
		if e.kind == Machine {
			sum.Machine++
		}
	}
	if len(kept) == 0 {
		return 0, fmt.Errorf("none of its %d entries is for a GPU of capability %d", len(entries), gpu)
	}
	sum.Dropped += len(entries)
	sum.Before, sum.After = sum.Before+size, sum.After+uint64(len(kept))
	clear(body[copy(body, kept):])
	binary.LittleEndian.PutUint64(b[8:], uint64(len(kept)))
	return start + header + int(size), nil
}

// split returns the entries of a region.
func split(body []byte) (all []entry, err error) {
	for len(body) > 0 {
		if len(body) < entryHeader {
			return nil, fmt.Errorf("%d bytes are left behind entry %d", len(body), len(all))
		}
		header, size := binary.LittleEndian.Uint32(body[4:]), binary.LittleEndian.Uint64(body[8:])
		if header < entryHeader || uint64(header) > uint64(len(body)) || size > uint64(len(body))-uint64(header) {
			return nil, fmt.Errorf("entry %d claims to have %d bytes behind a header of %d; there are %d", len(all), size, header, len(body))
		}
		e := entry{kind: Kind(binary.LittleEndian.Uint16(body)), arch: Arch(binary.LittleEndian.Uint32(body[28:])),
			data: body[:uint64(header)+size]}
		if e.kind != PTX && e.kind != Machine {
			return nil, fmt.Errorf("entry %d is of kind %d, expected %d or %d", len(all), e.kind, PTX, Machine)
		}
		all, body = append(all, e), body[len(e.data):]
	}
	return all, nil
}

// choose returns the entry that the driver would load: machine code of the same generation, the newest that isn't too new;
// else the newest PTX that isn't too new.
func choose(entries []entry, gpu Arch) []entry {
	best := -1
	for i, e := range entries {
		usable := e.arch <= gpu && (e.kind == PTX || e.arch/10 == gpu/10)
		if !usable {
			continue
		}
		if best < 0 || e.kind == Machine && entries[best].kind == PTX || e.kind == entries[best].kind && e.arch > entries[best].arch {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	return entries[best : best+1]
}
