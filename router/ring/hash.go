package ring

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"
)

// position is where a key or a virtual node lies: the upper half of its 64-bit xxHash (XXH64, seed 0).
func position(b []byte) uint32 {
	return uint32(xxhash.Sum64(b) >> 32)
}

// appendNode appends what is hashed for virtual node i of a member: its name and i as four bytes. The fixed length of
// the number keeps different nodes apart whatever the names are.
func appendNode(b []byte, member string, i int) []byte {
	b = append(b, member...)
	return binary.BigEndian.AppendUint32(b, uint32(i))
}

// version is a hash of the number of virtual nodes and of the sorted members, each with its length before it. Unless
// all weigh 100, all weights follow, after a number that is no name's length.
func version(members []Member, virtualNodes int) uint64 {
	b := binary.BigEndian.AppendUint32(nil, uint32(virtualNodes))
	even := true
	for _, m := range members {
		b = binary.BigEndian.AppendUint32(b, uint32(len(m.Name)))
		b = append(b, m.Name...)
		even = even && m.Weight == evenWeight
	}
	if !even {
		b = binary.BigEndian.AppendUint32(b, math.MaxUint32)
		for _, m := range members {
			b = binary.BigEndian.AppendUint32(b, uint32(m.Weight))
		}
	}
	return xxhash.Sum64(b)
}
