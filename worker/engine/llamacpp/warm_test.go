package llamacpp

import (
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

func TestAModelIsWarmedByTheStepsThatItsDeviceWillHave(t *testing.T) {
	for name, c := range map[string]struct {
		onGPU bool
		caps  engine.Caps
		want  []int
	}{
		"a CPU":                       {false, engine.Caps{KVTokens: 8192, MaxStepTokens: 512}, []int{1, 16}},
		"a GPU":                       {true, engine.Caps{KVTokens: 8192, MaxStepTokens: 512}, []int{1, 512, 512}},
		"a GPU with a small KV cache": {true, engine.Caps{KVTokens: 256, MaxStepTokens: 512}, []int{1, 256, 256}},
		"a GPU with small steps":      {true, engine.Caps{KVTokens: 8192, MaxStepTokens: 300}, []int{1, 300, 300}},
	} {
		if got := warmSteps(c.onGPU, &c.caps); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// jumping is a clock that is a second on whenever it is read.
type jumping struct{ *clocktesting.FakeClock }

func (j jumping) Now() time.Time {
	j.Step(time.Second)
	return j.FakeClock.Now()
}

func (j jumping) Since(t time.Time) time.Duration { return j.Now().Sub(t) }

func TestALoadSaysWhatItsLastStepTookAndLeavesTheCellsFree(t *testing.T) {
	path := written(t, small())
	l := open(t, func(o *Options) {
		o.WeightsPath = path
		o.Clock = jumping{clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))}
	})
	if l.Warm != time.Second {
		t.Errorf("it took %s", l.Warm)
	}
	x := l.Executor.(*executor)
	for _, onGPU := range []bool{false, true} {
		if _, err := x.warm(warmSteps(onGPU, &x.caps), x.embedder.options.Clock); err != nil {
			t.Error(err)
		}
	}
	if x.ledger.used != 0 {
		t.Errorf("%d cells are in use", x.ledger.used)
	}
}

func TestEachPassOfAnEmbeddingIsTold(t *testing.T) {
	l := openMade(t, small())
	x := l.Executor.(*executor)
	x.embedder.tokens = 64
	var told []int
	x.EachPass(func(tokens int) { told = append(told, tokens) })
	embedded(t, l, inputsOf(200, 10))
	if want := []int{64, 64, 64, 18}; !slices.Equal(told, want) {
		t.Errorf("told of %v, want %v", told, want)
	}
}
