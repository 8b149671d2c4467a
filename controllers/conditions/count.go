package conditions

import "strconv"

// Count is n and the word for it: one when n is 1, else many, as in "1 worker is left" and "2 workers are left".
func Count[N ~int | ~int32](n N, one, many string) string {
	word := many
	if n == 1 {
		word = one
	}
	return strconv.Itoa(int(n)) + " " + word
}
