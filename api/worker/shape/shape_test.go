package shape

import (
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/ringfleet/ringfleet/api/modelfile"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// shapes draws any shape that modelfile accepts.
func shapes(t *rapid.T) *modelfile.Shape {
	number := func(what string, least, most int) int { return rapid.IntRange(least, most).Draw(t, what) }
	bytes := func(what string) uint64 { return rapid.Uint64Range(0, maxBytes).Draw(t, what) }
	s := &modelfile.Shape{
		Name: rapid.String().Draw(t, "name"), Architecture: rapid.String().Draw(t, "architecture"), Type: rapid.String().Draw(t, "type"),
		Parameters: bytes("parameters"), WeightBytes: bytes("weights"), Counted: rapid.Bool().Draw(t, "counted"),
		InputBytes: bytes("input"), OutputBytes: bytes("output"), Tied: rapid.Bool().Draw(t, "tied"),
		Embedding: number("embedding", 1, 1<<18), FeedForward: number("feed-forward", 0, 1<<20), Heads: number("heads", 1, 1<<12),
		Vocab: number("vocab", 1, 1<<22), Context: number("context", 0, 1<<28), Experts: number("experts", 0, 1<<12),
		ExpertFeedForward: number("expert width", 0, 1<<20), SharedFeedForward: number("shared width", 0, 1<<20),
	}
	s.ExpertsUsed = number("experts used", 0, s.Experts)
	kinds := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) modelfile.Layer {
		n := func(what string, least, most int) int { return rapid.IntRange(least, most).Draw(t, what) }
		return modelfile.Layer{KVHeads: n("KV heads", 0, 1<<12), KeyLength: n("key", 1, 1<<13), ValueLength: n("value", 0, 1<<13),
			Window: n("window", 0, 1<<28), Bytes: rapid.Uint64Range(0, maxBytes).Draw(t, "bytes")}
	}), 1, 3).Draw(t, "kinds")
	for range number("layers", 1, 100) {
		s.Layers = append(s.Layers, rapid.SampledFrom(kinds).Draw(t, "layer"))
	}
	if rapid.Bool().Draw(t, "compressed") {
		s.MLA = &modelfile.MLA{Rank: number("rank", 1, 1<<20), Rope: number("rope", 0, 1<<13), ValueLength: number("MLA value", 1, 1<<13)}
		s.MLA.KeyLength = number("MLA key", max(s.MLA.Rope, 1), 1<<13)
	}
	return s
}

func TestAShapeComesOutOfAReportAsItWent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shapes(t)
		wire, err := proto.Marshal(Pack(s))
		if err != nil {
			t.Fatal(err)
		}
		var p workerv1.ModelShape
		if err := proto.Unmarshal(wire, &p); err != nil {
			t.Fatal(err)
		}
		got, err := Unpack(&p)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, s) {
			t.Errorf("went %+v, came %+v", s, got)
		}
	})
}

// llama has the sizes of Llama-3.1-70B.
func llama() *modelfile.Shape {
	s := &modelfile.Shape{Architecture: "llama", Embedding: 8192, FeedForward: 28672, Heads: 64, Vocab: 128256, WeightBytes: 141 << 30}
	for range 80 {
		s.Layers = append(s.Layers, modelfile.Layer{KVHeads: 8, KeyLength: 128, ValueLength: 128, Bytes: 1 << 30})
	}
	return s
}

func TestEqualLayersTakeOneRun(t *testing.T) {
	p := Pack(llama())
	if len(p.GetLayers()) != 1 || p.GetLayers()[0].GetCount() != 80 || proto.Size(p) > 100 {
		t.Errorf("80 equal layers are %d runs, %d bytes in all: %v", len(p.GetLayers()), proto.Size(p), p.GetLayers())
	}
}

func TestNoShapeIsNone(t *testing.T) {
	if p := Pack(nil); p != nil {
		t.Errorf("nothing is packed as %v", p)
	}
	if s, err := Unpack(nil); s != nil || err != nil {
		t.Errorf("nothing is unpacked as %v, %v", s, err)
	}
}

func TestAReportedShapeThatNoModelHasIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*workerv1.ModelShape)
		says   string
	}{
		"layers beyond counting": {func(p *workerv1.ModelShape) { p.Layers[0].Count = 1 << 31 }, "a run of 2147483648 layers"},
		"many runs": {func(p *workerv1.ModelShape) {
			p.Layers = append(p.Layers, &workerv1.LayerRun{Count: 1000, KeyLength: 1})
		}, "a run of 1000 layers"},
		"an empty run":      {func(p *workerv1.ModelShape) { p.Layers[0].Count = 0 }, "expected at least one"},
		"no layers":         {func(p *workerv1.ModelShape) { p.Layers = nil }, "layers 0"},
		"a layer too heavy": {func(p *workerv1.ModelShape) { p.Layers[0].Bytes = 1 << 60 }, "of 1152921504606846976 bytes"},
		"weights too heavy": {func(p *workerv1.ModelShape) { p.WeightBytes = 1 << 63 }, "bytes of weights"},
		"a width too large": {func(p *workerv1.ModelShape) { p.Embedding = 1 << 31 }, "the embedding's width"},
	} {
		p := Pack(llama())
		c.change(p)
		if s, err := Unpack(p); s != nil || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v, want an error with %q", name, s, err, c.says)
		}
	}
}

func TestOfSeveralFaultsTheSameIsAlwaysToldOf(t *testing.T) {
	for range 64 {
		p := Pack(llama())
		p.Parameters, p.WeightBytes, p.InputBytes, p.OutputBytes = 1<<63, 1<<63, 1<<63, 1<<63
		if _, err := Unpack(p); err == nil || !strings.Contains(err.Error(), "9223372036854775808 parameters") {
			t.Fatalf("got %v", err)
		}
	}
}
