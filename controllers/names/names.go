// Package names says how names of objects that people choose become names and labels of the objects that are made for
// them, and which pool a model means. Each is a pure function, the same for all controllers; what is made under a name
// is decided by the packages desired.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// Max is the longest DNS label, and the longest value of a label.
const Max = 63

// hashLength is how many hex digits tell shortened names apart.
const hashLength = 8

// Short makes a DNS label of at most limit (more than 10) characters that begins with a letter: the beginning of text and a
// hash of whole. Letters are lowered and what a label can't hold becomes a dash, so the hash alone tells two wholes apart.
func Short(text, whole string, limit int) string {
	b := []byte(strings.ToLower(text))
	for i, c := range b {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			b[i] = '-'
		}
	}
	s := strings.Trim(string(b), "-")
	if s == "" || s[0] < 'a' {
		s = strings.TrimRight("m-"+s, "-")
	}
	return begin(s, limit) + "-" + hash(whole)
}

// Label is name where it fits into a label's value, and else its beginning with a hash of all of it. The name is a DNS
// subdomain, as the names of objects are.
func Label(name string) string {
	if len(name) <= Max {
		return name
	}
	return begin(name, Max) + "-" + hash(name)
}

// begin is as much of s as leaves room for a hash within limit.
func begin(s string, limit int) string {
	return strings.TrimRight(s[:min(len(s), limit-1-hashLength)], "-.")
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:hashLength]
}

// Pool is the name of the WorkerPool that m refers to.
func Pool(m *v1alpha1.InferenceModel) string {
	if m.Spec.PoolRef.Name != "" {
		return m.Spec.PoolRef.Name
	}
	return v1alpha1.DefaultName
}
