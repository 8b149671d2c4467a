package mock

import "testing"

func TestAWorkerHasHalfOfTheProcessorsAndOneAtLeast(t *testing.T) {
	for available, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 16: 8} {
		if got := half(available); got != want {
			t.Errorf("%d of %d processors, want %d", got, available, want)
		}
	}
}
