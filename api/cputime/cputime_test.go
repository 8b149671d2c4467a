package cputime

import "testing"

func TestAProcessThatComputesUsesTime(t *testing.T) {
	before := Used()
	for n := 0; Used() == before; n++ {
		if n == 1e7 {
			t.Fatalf("%s were used before as after", before)
		}
	}
}
