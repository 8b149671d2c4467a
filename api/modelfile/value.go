package modelfile

import "fmt"

// The types of metadata values, by their numbers in the format.
const (
	valueInt8    = 1
	valueInt16   = 3
	valueInt32   = 5
	valueFloat32 = 6
	valueBool    = 7
	valueString  = 8
	valueArray   = 9
	valueInt64   = 11
	valueFloat64 = 12
)

// widths of the values of fixed size by type number; 0 for the others.
var widths = [valueFloat64 + 1]uint64{0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

// value is one metadata value as far as it is kept.
type value struct {
	kind uint32
	bits uint64   // of a value of fixed width
	text string   // of a string of at most maxKept bytes
	list []uint64 // of an array of at most maxList values of fixed width
	item uint32   // type of an array's elements
	len  uint64   // elements of an array, bytes of a string
}

// value reads a value and keeps it where it is small: vocabularies are only counted.
func (r *reader) value(kind uint32) (v value, err error) {
	v.kind = kind
	switch {
	case kind == valueString:
		if v.len, err = r.u64(); err != nil {
			return v, err
		}
		if v.len > maxKept {
			return v, r.discard(v.len)
		}
		v.text, err = r.text(v.len)
	case kind == valueArray:
		err = r.array(&v, 0)
	case kind > valueFloat64:
		err = unknownValue(kind)
	default:
		v.bits, err = r.bits(kind)
	}
	return v, err
}

// array reads an array: its values where they are few numbers.
func (r *reader) array(v *value, depth int) (err error) {
	if depth >= maxNesting {
		return malformed(fmt.Sprintf("arrays nest deeper than %d", maxNesting))
	}
	if v.item, err = r.u32(); err != nil {
		return err
	}
	if v.len, err = r.count("elements of an array", maxArray); err != nil {
		return err
	}
	fixed := v.item <= valueFloat64 && widths[v.item] > 0
	switch {
	case fixed && v.len <= maxList && depth == 0:
		for range v.len {
			b, err := r.bits(v.item)
			if err != nil {
				return err
			}
			v.list = append(v.list, b)
		}
		return nil
	case fixed:
		return r.discard(v.len * widths[v.item])
	}
	for range v.len { // each element takes at least eight bytes, so the end of the file bounds this
		if err := r.skip(v.item, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// skip reads over an element of an array, which is a string or an array itself.
func (r *reader) skip(kind uint32, depth int) error {
	switch kind {
	case valueString:
		n, err := r.u64()
		if err != nil {
			return err
		}
		return r.discard(n)
	case valueArray:
		return r.array(&value{}, depth)
	}
	return unknownValue(kind)
}

func unknownValue(kind uint32) error {
	return malformed(fmt.Sprintf("a value has type %d, expected at most %d", kind, valueFloat64))
}

// size is about what v takes in memory.
func (v value) size() uint64 { return 64 + uint64(len(v.text)) + 8*uint64(len(v.list)) }

// whole reports whether kind is that of whole numbers.
func whole(kind uint32) bool {
	return kind <= valueInt64 && kind != valueFloat32 && kind != valueBool && kind != valueString && kind != valueArray
}

// signed reports whether kind has a sign.
func signed(kind uint32) bool {
	return kind == valueInt8 || kind == valueInt16 || kind == valueInt32 || kind == valueInt64
}

// natural reports whether bits are no negative number.
func natural(kind uint32, bits uint64) bool { return whole(kind) && !(signed(kind) && int64(bits) < 0) }
