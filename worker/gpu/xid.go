package gpu

import "fmt"

// xids are the driver's error codes as NVIDIA's XID catalogue explains them. Codes that are not listed break a device: that
// is the careful guess.
var xids = map[uint64]struct {
	severity Severity
	says     string
}{
	13:  {Program, "graphics engine exception"},
	31:  {Program, "memory page fault"},
	32:  {Program, "invalid or corrupted push buffer"},
	43:  {Program, "a program stopped by an error of its own"},
	45:  {Program, "preemptive cleanup after an earlier error"},
	48:  {Broken, "double-bit ECC error"},
	61:  {Broken, "internal microcontroller breakpoint"},
	62:  {Broken, "internal microcontroller halt"},
	63:  {Notice, "a row of the memory is to be replaced"},
	64:  {Broken, "a row of the memory could not be replaced"},
	68:  {Program, "video processor exception"},
	69:  {Program, "graphics engine class error"},
	74:  {Broken, "NVLink error"},
	79:  {Broken, "the device has fallen off the bus"},
	92:  {Notice, "many single-bit ECC errors"},
	94:  {Notice, "contained ECC error: the program that met it ends"},
	95:  {Broken, "uncontained ECC error"},
	109: {Program, "context switch timeout"},
	119: {Broken, "the GPU system processor doesn't answer"},
	120: {Broken, "error of the GPU system processor"},
	121: {Notice, "error of the link between chips"},
	140: {Broken, "unrecovered ECC error"},
	143: {Broken, "the device could not be initialised"},
}

// judge says what an XID means.
func judge(xid uint64) (Severity, string) {
	if x, ok := xids[xid]; ok {
		return x.severity, fmt.Sprintf("XID %d: %s", xid, x.says)
	}
	return Broken, fmt.Sprintf("XID %d", xid)
}
