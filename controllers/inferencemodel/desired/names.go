// Package desired says what the objects of an InferenceModel should be: its worker pods, its headless Service, their
// names and the revision of a worker. Everything follows from its arguments; it reads and writes no object.
package desired

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// maxName is the longest DNS label, and the longest value of a label.
const maxName = 63

// Lengths of the parts of a name that follow the model's own.
const (
	hashLength     = 8
	revisionLength = 6 // of the revision's own length, which is revisionBytes * 2
	ordinalLength  = 5
	workerTail     = 1 + hashLength + 1 + revisionLength + 1 + ordinalLength
)

// ServiceName is the name of m's headless Service: at most 63 characters, a DNS label that begins with a letter, and
// another one for every UID.
func ServiceName(m *v1alpha1.InferenceModel) string {
	return short(m.Name, maxName-1-hashLength) + "-" + digest(string(m.UID), hashLength)
}

// WorkerName is the name of the worker pod with that revision and ordinal (0…99999), under the rules of ServiceName.
func WorkerName(m *v1alpha1.InferenceModel, revision string, ordinal int) string {
	return short(m.Name, maxName-workerTail) + "-" + digest(string(m.UID), hashLength) +
		"-" + revision[:min(len(revision), revisionLength)] + "-" + strconv.Itoa(ordinal)
}

// Ordinal is the ordinal in the name of a worker pod; false when the name has none.
func Ordinal(pod string) (int, bool) {
	n, err := strconv.ParseUint(pod[strings.LastIndexByte(pod, '-')+1:], 10, 31)
	return int(n), err == nil
}

// LabelValue is name where it fits into a label's value, and a shortened form with a hash of all of it otherwise.
func LabelValue(name string) string {
	if len(name) <= maxName {
		return name
	}
	return short(name, maxName-1-hashLength) + "-" + digest(name, hashLength)
}

// short makes the beginning of a DNS label of at most limit characters from name: letters are lowered, everything that
// a label can't hold becomes a dash, and it begins with a letter and ends with a letter or digit.
func short(name string, limit int) string {
	b := []byte(strings.ToLower(name))
	for i, c := range b {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			b[i] = '-'
		}
	}
	s := strings.Trim(string(b), "-")
	if s == "" || s[0] < 'a' {
		s = strings.TrimRight("m-"+s, "-")
	}
	return strings.TrimRight(s[:min(len(s), limit)], "-")
}

// digest is the first n hex digits of the SHA-256 of s.
func digest(s string, n int) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:n]
}
