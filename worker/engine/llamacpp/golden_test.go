package llamacpp

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// ahead returns the place of the greatest of row, and how many standard deviations the second is behind.
func ahead(row []float64) (at int, deviations float64) {
	squares := 0.0
	for i, x := range row {
		squares += x * x
		if x > row[at] {
			at = i
		}
	}
	rest := append(slices.Clone(row[:at]), row[at+1:]...)
	return at, (row[at] - slices.Max(rest)) / math.Sqrt(squares/float64(len(row)))
}

func TestTheGoldenTokensAreWhatTheModelComputes(t *testing.T) {
	file, head, err := goldenModel()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	m := newReference(t, file, head)
	seqs := make([]cells, 2)
	var got []engine.Token
	for _, b := range golden.batches() {
		for _, op := range b.KV {
			from := op.Dst
			if op.Kind == engine.KVFork {
				from = op.Src
			}
			seqs[op.Dst] = seqs[from].cut(op.N)
		}
		for _, it := range b.Items {
			token, by := ahead(m.logits(&seqs[it.Seq], it.Tokens))
			got = append(got, engine.Token(token))
			if by < 0.75 {
				t.Errorf("answer %d is only %.2f deviations ahead of the next", len(got)-1, by)
			}
		}
	}
	if !slices.Equal(got, golden.want) {
		t.Errorf("the model computes %v, golden are %v", got, golden.want)
	}
}

func TestALibraryThatComputesWronglyIsNamed(t *testing.T) {
	open(t)
	o := options(t)
	good := golden
	defer func() { golden, loaded.checked = good, true }()
	loaded.checked = false
	if err := loaded.check(&o); err != nil || !loaded.checked {
		t.Fatalf("the pinned library: %v", err)
	}
	loaded.checked = false
	golden.prompt = slices.Clone(good.prompt)
	golden.prompt[3]++ // as where a library reads another token
	err := loaded.check(&o)
	for _, part := range []string{loaded.dir, "computes wrongly", "libllama.v0.5.0.so", "[280 261"} {
		if err == nil || !strings.Contains(err.Error(), part) || loaded.checked {
			t.Errorf("got %v, want %q in it", err, part)
		}
	}
}

// alone is set in the process that TestEveryVariantOfTheLibraryComputesRight starts.
const alone = "RINGFLEET_TEST_VARIANT"

func TestEveryVariantOfTheLibraryComputesRight(t *testing.T) {
	if dir := os.Getenv(alone); dir != "" {
		o := options(t)
		o.LibraryDir = dir
		l, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Executor.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	libs, _ := paths(t)
	variants, err := filepath.Glob(filepath.Join(libs, "libggml-cpu-*.so"))
	if err != nil || len(variants) == 0 {
		t.Fatalf("%v, %v", variants, err)
	}
	ran := 0
	for _, v := range variants {
		dir := t.TempDir()
		for from, to := range map[string]string{"libllama.so": "libllama.v0.5.0.so", "libggml.so": "libggml.v0.5.0.so",
			"libggml-base.so": "libggml-base.so", filepath.Base(v): filepath.Base(v)} {
			copyFile(t, filepath.Join(libs, to), filepath.Join(dir, to))
			if from != to {
				if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
					t.Fatal(err)
				}
			}
		}
		other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		other.Env = append(os.Environ(), alone+"="+dir)
		out, err := other.CombinedOutput()
		switch {
		case err == nil:
			ran++
		case strings.Contains(string(out), "suits this machine's CPU"):
			t.Logf("%s is for other CPUs", filepath.Base(v))
		default:
			t.Errorf("%s: %v\n%s", filepath.Base(v), err, out)
		}
	}
	if ran < 2 {
		t.Errorf("%d of %d variants ran, expected one for any CPU and the one for this", ran, len(variants))
	}
	t.Logf("%d of %d variants ran", ran, len(variants))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
