package command

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ringfleet/ringfleet/api/memoryplan"
)

// printReport writes the plan for people.
func printReport(w io.Writer, r *report) {
	s, p := r.model.shape, r.plan
	how := "as read from"
	if s.Counted {
		how = "worked out from"
	}
	fmt.Fprintf(w, "%s: %s, %s of %s %s %s\n", r.model.name, parameters(s.Parameters), gigabytes(s.WeightBytes), s.Type, how, r.model.from)
	fmt.Fprintf(w, "%s, %s, embedding %s, %s, vocabulary %s, context %s\n", s.Architecture, count(len(s.Layers), "layer", "layers"), group(s.Embedding),
		heads(r), group(s.Vocab), group(s.Context))
	fmt.Fprintf(w, "on %s\nwith %s of %s tokens at a time, KV cache %s, steps of %s tokens\n\n", where(r),
		count(p.Options.Sequences, "sequence", "sequences"), group(p.Options.ContextTokens), p.Options.KV, group(p.Options.StepTokens))
	printDevice(w, r)
	fmt.Fprintln(w)
	printVerdict(w, r)
	printGrid(w, r)
}

// heads describes what the layers cache.
func heads(r *report) string {
	s := r.model.shape
	switch l := s.Layers[0]; {
	case s.MLA != nil:
		return fmt.Sprintf("%d heads over a compressed key of %d", s.Heads, l.KeyLength)
	case s.Window() > 0:
		return fmt.Sprintf("%d heads, %d cached, windows of %s tokens", s.Heads, l.KVHeads, group(s.Window()))
	default:
		return fmt.Sprintf("%d heads, %d cached", s.Heads, l.KVHeads)
	}
}

// where describes the devices and how the engine uses them.
func where(r *report) string {
	o := r.plan.Options
	if o.GPUs == 0 {
		return fmt.Sprintf("the CPU with %s of memory, %s", gib(o.MemoryBytes), engineName(o.Engine))
	}
	how := ""
	switch {
	case o.GPUs > 1 && o.Engine == memoryplan.VLLM:
		how = ", each layer on all of them"
	case o.GPUs > 1:
		how = ", each layer on one of them"
	}
	return fmt.Sprintf("%d × %s of %s, %s%s", o.GPUs, orElse(r.gpu, "GPU"), gib(o.MemoryBytes), engineName(o.Engine), how)
}

func engineName(e memoryplan.Engine) string {
	if e == memoryplan.VLLM {
		return "vLLM"
	}
	return "llama.cpp"
}

// barCells is the width of the whole memory in the picture.
const barCells = 40

// printDevice draws the fullest device.
func printDevice(w io.Writer, r *report) {
	p := r.plan
	d := p.Devices[p.Fullest]
	title := "the container"
	switch n := p.Options.GPUs; {
	case n == 1:
		title = "the GPU"
	case n > 1 && p.Options.Engine == memoryplan.VLLM:
		title = "each GPU"
	case n > 1:
		title = fmt.Sprintf("GPU %d, the fullest", p.Fullest)
	}
	fmt.Fprintf(w, "  %-20s %8s\n", title, "GiB")
	line := func(name string, n uint64) {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %-20s %8.2f  %s", name, float64(n)/(1<<30), bar(n, p.Options.MemoryBytes)), " "))
	}
	line("weights", d.Weights)
	line("KV cache", d.KV)
	line("compute", d.Compute)
	line("runtime", d.Runtime)
	if d.Total() <= p.Budget {
		line("free", p.Budget-d.Total())
	}
	line(fmt.Sprintf("left alone (%d %%)", 100-p.Options.UsePercent), p.Options.MemoryBytes-p.Budget)
	if d.Total() > p.Budget {
		fmt.Fprintf(w, "  %-20s %8.2f\n", "missing", float64(d.Total()-p.Budget)/(1<<30))
	}
}

// bar draws n bytes of all. More than all ends in an arrow.
func bar(n, all uint64) string {
	eighths := int(min(float64(n)/float64(all)*barCells*8+0.5, barCells*8+1))
	if eighths > barCells*8 {
		return strings.Repeat("█", barCells) + "▶"
	}
	b := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		b += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return b
}

// printVerdict says whether it fits and what to do.
func printVerdict(w io.Writer, r *report) {
	p := r.plan
	if p.Fits {
		fmt.Fprintf(w, "It fits: as many as %s of %s tokens would. ", count(p.MostSequences, "sequence", "sequences"), group(p.Options.ContextTokens))
		fmt.Fprintf(w, "A further token of one takes %s.\n", kib(p.TokenBytes))
		if p.HostBytes > 0 {
			fmt.Fprintf(w, "The container itself needs %s for the token embeddings and the results.\n", gib(p.HostBytes))
		}
		if o := p.Options; o.Engine == memoryplan.LlamaCpp {
			fmt.Fprintf(w, "An InferenceModel has it as spec.engine: {contextTokens: %d, maxSequences: %d, kvCacheType: %s}.\n",
				o.ContextTokens*o.Sequences, o.Sequences, o.KV)
		}
		return
	}
	d := p.Devices[p.Fullest]
	fmt.Fprintf(w, "It doesn't fit: %s are needed, and %s may be used.", gib(d.Total()), gib(p.Budget))
	if len(p.Ways) == 0 {
		fmt.Fprint(w, " No single change is enough: change several of GPUs, sequences, their length and the weights.\n")
		return
	}
	fmt.Fprint(w, " One of these is enough:\n")
	for _, way := range p.Ways {
		fmt.Fprintf(w, "  %s\n", advice(r, way))
	}
}

// advice says a change as the user makes it.
func advice(r *report, w memoryplan.Way) string {
	switch w.Change {
	case memoryplan.SmallerKV:
		return fmt.Sprintf("%-26s a KV cache of half the size", "--kv-type "+string(w.KV))
	case memoryplan.FewerSequences:
		return fmt.Sprintf("%-26s fewer at a time; the others wait", fmt.Sprintf("--sequences %d", w.Value))
	case memoryplan.ShorterContext:
		return fmt.Sprintf("%-26s shorter sequences", fmt.Sprintf("--context-tokens %d", w.Value))
	case memoryplan.MoreGPUs:
		return fmt.Sprintf("%-26s shared out among more", fmt.Sprintf("--gpus %d", w.Value))
	}
	bits := func(n uint64) float64 { return float64(n) * 8 / float64(max(r.model.shape.Parameters, 1)) }
	return fmt.Sprintf("%-26s of at most %s, %.1f bits each; they have %.1f", "smaller weights", gigabytes(w.Value), bits(w.Value), bits(r.model.shape.WeightBytes))
}

// printGrid writes how many sequences of which length fit.
func printGrid(w io.Writer, r *report) {
	if len(r.grid) == 0 {
		return
	}
	fmt.Fprintf(w, "\n  sequences that fit, by their length in tokens\n  %4s", "GPUs")
	for _, c := range r.grid[0].Sequences {
		fmt.Fprintf(w, " %9s", group(c.ContextTokens))
	}
	fmt.Fprintln(w)
	for _, row := range r.grid {
		fmt.Fprintf(w, "  %4d", row.GPUs)
		for _, c := range row.Sequences {
			n := "-"
			if c.Most > 0 {
				n = group(c.Most)
			}
			fmt.Fprintf(w, " %9s", n)
		}
		fmt.Fprintln(w)
	}
}

func gib(n uint64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }
func kib(n uint64) string {
	return fmt.Sprintf("%s KiB", strconv.FormatFloat(float64(n)/1024, 'f', -1, 32))
}
func gigabytes(n uint64) string { return fmt.Sprintf("%.1f GB", float64(n)/1e9) }

func parameters(n uint64) string {
	if n < 1e9 {
		return fmt.Sprintf("%.1f M parameters", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f B parameters", float64(n)/1e9)
}

// group writes n with a comma for every three digits.
func group(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// json is the plan for programs. Sizes are in bytes.
func (r *report) json() any {
	s, p := r.model.shape, r.plan
	return struct {
		Model            string             `json:"model"`
		Architecture     string             `json:"architecture"`
		Parameters       uint64             `json:"parameters"`
		WeightBytes      uint64             `json:"weightBytes"`
		WeightsCounted   bool               `json:"weightsCounted"`
		Engine           memoryplan.Engine  `json:"engine"`
		GPUs             int                `json:"gpus"`
		MemoryBytes      uint64             `json:"memoryBytes"`
		UsableBytes      uint64             `json:"usableBytes"`
		ContextTokens    int                `json:"contextTokens"`
		Sequences        int                `json:"sequences"`
		KVType           memoryplan.KVType  `json:"kvType"`
		StepTokens       int                `json:"stepTokens"`
		Fits             bool               `json:"fits"`
		Devices          []memoryplan.Parts `json:"devices"`
		HostBytes        uint64             `json:"hostBytes"`
		KVBytesPerToken  uint64             `json:"kvBytesPerToken"`
		MostSequences    int                `json:"mostSequences"`
		Ways             []memoryplan.Way   `json:"ways,omitempty"`
		SequencesThatFit []gridRow          `json:"sequencesThatFit"`
	}{r.model.name, s.Architecture, s.Parameters, s.WeightBytes, s.Counted, p.Options.Engine, p.Options.GPUs, p.Options.MemoryBytes, p.Budget,
		p.Options.ContextTokens, p.Options.Sequences, p.Options.KV, p.Options.StepTokens, p.Fits, p.Devices, p.HostBytes, p.TokenBytes,
		p.MostSequences, p.Ways, r.grid}
}
