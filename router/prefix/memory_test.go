package prefix

import (
	"runtime"
	"strconv"
	"testing"
	"unsafe"
)

func TestPiecesHaveTheSizesThatAreCounted(t *testing.T) {
	if unsafe.Sizeof(run{}) != runSize || unsafe.Sizeof(hold{}) != holdSize || unsafe.Sizeof(link{}) != linkSize {
		t.Errorf("run %d, hold %d, link %d bytes", unsafe.Sizeof(run{}), unsafe.Sizeof(hold{}), unsafe.Sizeof(link{}))
	}
	if own := unsafe.Sizeof(worker{}) + unsafe.Sizeof(mark{}) + 2*unsafe.Sizeof(Slot(0)); 2*own > workerSize {
		t.Errorf("a worker takes %d bytes without its name, counted as %d with it", own, workerSize)
	}
}

// fill sends n prompts of so many blocks that share nothing to workers in turn.
func fill(x *Index, slots []Slot, from, n, blocks int) {
	var c Chain
	prompt := make([]byte, blocks*BlockBytes)
	for i := range n {
		b := Begin(c, strconv.Itoa(from+i))
		b.Write(prompt)
		c = b.Chain()
		x.Insert(slots[i%len(slots)], c)
	}
}

func TestUniquePromptsForEverStayWithinTheBound(t *testing.T) {
	x := New(Options{MaxBytes: 4 << 20})
	slots := []Slot{x.Slot("a"), x.Slot("b"), x.Slot("c")}
	fill(x, slots, 0, 4000, 512)
	full := x.Stats()
	fill(x, slots, 4000, 16000, 512) // 655 MB of prompts by then
	after := x.Stats()
	if after.Bytes != full.Bytes || after.Bytes > after.MaxBytes || after.Bytes < after.MaxBytes/2 {
		t.Errorf("%d bytes after 4,000 prompts, %d after 20,000, bound %d", full.Bytes, after.Bytes, after.MaxBytes)
	}
	if err := sound(&x.tree); err != nil {
		t.Error(err)
	}
}

func TestWhatIsUsedStaysWhileOthersPassThrough(t *testing.T) {
	x := New(Options{MaxBytes: LeastMaxBytes})
	slots := []Slot{x.Slot("a"), x.Slot("b")}
	system, idle := chain(text("system", 300)), chain(text("idle", 300))
	x.Insert(slots[0], idle)
	for i := range 100 {
		x.Insert(slots[0], system)
		fill(x, slots[1:], 20*i, 20, 200)
		want(t, x, slots, system, 300, 0)
	}
	want(t, x, slots, idle, 0, 0)
}

func TestTheBoundHoldsWhateverFillsIt(t *testing.T) {
	for _, bound := range []int64{0, 1, LeastMaxBytes, 3_000_000, 5_555_555} {
		x := New(Options{MaxBytes: bound})
		var slots []Slot
		for i := range 60 {
			slots = append(slots, x.Slot(strconv.Itoa(i)))
		}
		if bound > 0 {
			fill(x, slots[:1], 0, 6000, 300) // runs
			for i := range 1500 {            // holds
				for _, s := range slots {
					x.Insert(s, Chain{uint64(i + 1)})
				}
			}
		}
		most := int64(cap(x.tree.runs))*runPage*runSize + int64(cap(x.tree.holds))*holdPage*holdSize
		s := x.Stats()
		if s.Bytes > s.MaxBytes || most > s.MaxBytes || bound >= LeastMaxBytes && s.MaxBytes != bound {
			t.Errorf("bound %d: %+v", bound, s)
		}
		if bound > 0 && (x.tree.runIDs.made < x.tree.runIDs.most || x.tree.holdIDs.made < x.tree.holdIDs.most) {
			t.Errorf("bound %d is not reached: %d runs of %d, %d holds of %d", bound, x.tree.runIDs.made, x.tree.runIDs.most,
				x.tree.holdIDs.made, x.tree.holdIDs.most)
		}
	}
}

func TestTheMemoryThatIsCountedIsWhatTheProcessTakes(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	x := New(Options{MaxBytes: 16 << 20})
	var slots []Slot
	for i := range 200 {
		slots = append(slots, x.Slot("instance-of-a-worker-with-a-long-name-"+strconv.Itoa(i)))
	}
	fill(x, slots, 0, 3000, 512)
	fill(x, slots, 3000, 3000, 7)
	took, says := heap()-before, x.Stats().Bytes
	if took > says*11/10 || took < says*9/10 {
		t.Errorf("the index says %d bytes, the heap has grown by %d", says, took)
	}
	runtime.KeepAlive(x)
}

func TestAKnownPromptTakesNoAllocation(t *testing.T) {
	x := New(Options{})
	slots := []Slot{x.Slot("a"), x.Slot("b")}
	c := chain(text("A", 3000))
	dst := make([]int, 2)
	x.Settle(slots[0], c, x.Insert(slots[0], c), 0)
	if n := testing.AllocsPerRun(20, func() {
		dst = x.Match(c, slots, dst)
		x.Settle(slots[0], c, x.Insert(slots[0], c), dst[0])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
