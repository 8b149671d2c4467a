package agent

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ringfleet/ringfleet/api/memoryplan"
	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/api/worker/shape"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/llamacpp"
	"github.com/ringfleet/ringfleet/worker/grpcserver"
)

// memoryShort is the reason of a model that has no room, as its condition MemoryFits shows it.
const memoryShort = "MemoryShort"

// memory is where the model's room is asked for.
type memory struct {
	// root is the file system; nil: this machine's.
	root fs.FS
	// gpus are nil where there is no driver.
	gpus gpus
}

// room is what a model in this process may take.
type room struct {
	// gpus share the model; 0: it is in the container's memory.
	gpus int
	// bytes is the size of the largest GPU's memory, or of the container's; 0: unknown. Bound: more than that is refused or
	// killed for.
	bytes uint64
	bound bool
	// free is what nobody uses of the GPU that has most of that.
	free uint64
}

// fit reports the model's shape and refuses a model that has no room: the process would be killed for it, or the GPU's driver
// would refuse it halfway. What only may be too much is loaded, and said in the log. The error is an *engine.LoadError.
func (a *agent) fit(head *modelfile.GGUF) error {
	s, err := modelfile.GGUFShape(head)
	if err != nil {
		a.log.Info("The memory of the model is not planned", "message", err.Error())
		return nil
	}
	a.state.describe(shape.Pack(s))
	r := a.memory.room(&a.o, len(s.Layers))
	if r.bytes == 0 {
		return nil
	}
	v, err := judge(s, a.o.memory(r), r, a.o.terms())
	if err != nil {
		a.log.Info("The memory of the model is not planned", "message", err.Error())
		return nil
	}
	if v.refused {
		return &engine.LoadError{Reason: memoryShort, Message: v.says}
	}
	if v.short {
		a.log.Info("The memory may not suffice", "message", v.says)
	} else {
		a.log.Info("The memory suffices", "message", v.says)
	}
	return nil
}

// describe puts the model's shape into the reports.
func (s *state) describe(p *workerv1.ModelShape) {
	s.set(func(st *grpcserver.Status) { st.Shape = p })
}

// memory is what is asked of the memory for a model in this process.
func (o *Options) memory(r room) memoryplan.Options {
	return memoryplan.Options{
		Engine: memoryplan.LlamaCpp, GPUs: r.gpus, MemoryBytes: r.bytes, ContextTokens: o.ContextTokens, Shared: true,
		Sequences: o.sequences(), KV: memoryplan.KVType(o.KVCacheType),
	}
}

// terms are the names by which people change that.
func (o *Options) terms() memoryplan.Terms {
	t := memoryplan.Terms{Idle: o.sequences() - o.MaxSequences, Parallelism: "parallelism.pipeline"}
	if llamacpp.Split(o.GPU.Split) == llamacpp.SplitRow {
		t.Parallelism = "parallelism.tensor"
	}
	return t
}

// processBytes is what the worker's process takes at the least beside the model, by measurement: it is sure, where
// memoryplan's allowance is safe.
const processBytes = 32 << 20

// verdict is what comes of a plan.
type verdict struct {
	refused, short bool
	says           string
}

// judge decides whether a model is loaded. Refused is what can't work: without a GPU, a KV cache and buffers beyond the
// container's limit, since nothing of them can be given back; with GPUs, weights, cache and buffers beyond the memory of the
// largest, or of what is free there. Weights in the container's memory are a mapped file: what finds no room is read again
// with every step, which is slow and kills nobody.
func judge(s *modelfile.Shape, o memoryplan.Options, r room, t memoryplan.Terms) (verdict, error) {
	least := o
	least.UsePercent, least.RuntimeBytes = 100, 1
	what := *s
	if r.gpus == 0 {
		least.RuntimeBytes = processBytes
		what = weightless(s)
	}
	sure, err := memoryplan.New(&what, least)
	if err != nil {
		return verdict{}, err
	}
	full, err := memoryplan.New(s, o)
	if err != nil {
		return verdict{}, err
	}
	v := verdict{refused: r.bound && !sure.Fits, short: !full.Fits, says: full.Say(t)}
	switch {
	case v.refused && r.gpus == 0:
		v.says = fmt.Sprintf("the worker would be killed: its KV cache and buffers alone take %s, and the container's limit is %s; %s",
			memoryplan.Size(sure.Devices[0].Total()), memoryplan.Size(r.bytes), v.says)
	case v.short && r.gpus == 0:
		v.says += "; weights beyond the limit are read from the disk again with every step"
	case !v.refused && r.gpus > 0 && r.free < r.bytes:
		return occupied(s, o, least, r, t, v)
	}
	return v, nil
}

// occupied judges GPUs that would have room, but for what others use of them.
func occupied(s *modelfile.Shape, o, least memoryplan.Options, r room, t memoryplan.Terms, v verdict) (verdict, error) {
	o.MemoryBytes, least.MemoryBytes = max(r.free, 1<<20), max(r.free, 1<<20)
	sure, err := memoryplan.New(s, least)
	if err != nil {
		return verdict{}, err
	}
	full, err := memoryplan.New(s, o)
	if err != nil {
		return verdict{}, err
	}
	if full.Fits {
		return v, nil
	}
	return verdict{refused: !sure.Fits, short: true, says: fmt.Sprintf("%s; other processes have %s of the GPU's %s",
		full.Say(t), memoryplan.Size(r.bytes-r.free), memoryplan.Size(r.bytes))}, nil
}

// weightless is s without its weights.
func weightless(s *modelfile.Shape) modelfile.Shape {
	c := *s
	c.WeightBytes, c.InputBytes, c.OutputBytes, c.Layers = 0, 0, 0, nil
	for _, l := range s.Layers {
		l.Bytes = 0
		c.Layers = append(c.Layers, l)
	}
	return c
}

// room asks for the room of a model of so many layers.
func (m *memory) room(o *Options, layers int) room {
	switch {
	case o.GPU.Layers == 0:
		root := m.root
		if root == nil {
			root = os.DirFS("/")
		}
		return containerRoom(root)
	case o.GPU.Layers > 0 && o.GPU.Layers <= layers, m.gpus == nil:
		return room{} // a part of the model, or unknown devices
	}
	r := room{bound: true}
	for _, d := range m.gpus.Snapshot().Devices {
		bytes, used := d.MemoryBytes, d.UsedBytes
		if len(d.Parts) > 0 { // CUDA gives a process one part of a GPU
			bytes, used = d.Parts[0].MemoryBytes, &d.Parts[0].UsedBytes
		}
		r.gpus++
		r.bytes = max(r.bytes, bytes)
		free := bytes
		if used != nil {
			free -= min(*used, bytes)
		}
		r.free = max(r.free, free)
		if len(d.Parts) > 0 || llamacpp.Split(o.GPU.Split) == llamacpp.SplitNone {
			break
		}
	}
	return r
}

// containerRoom is the least of the limits of this process's control groups (version 2), or else the machine's memory, beyond
// which nothing is sure.
func containerRoom(root fs.FS) room {
	r := room{bytes: machineBytes(root)}
	own := ""
	for line := range strings.Lines(text(root, "proc/self/cgroup")) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			own = p
		}
	}
	for p := path.Clean("/" + own); ; p = path.Dir(p) {
		limit, err := strconv.ParseUint(strings.TrimSpace(text(root, path.Join("sys/fs/cgroup", p, "memory.max"))), 10, 64)
		if err == nil && (r.bytes == 0 || limit < r.bytes) { // "max", and no file, are no limit
			r.bytes, r.bound = limit, true
		}
		if p == "/" {
			return r
		}
	}
}

// machineBytes is the machine's memory; 0: unknown.
func machineBytes(root fs.FS) uint64 {
	for line := range strings.Lines(text(root, "proc/meminfo")) {
		var kib uint64
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}

// text is a file's; "" where there is none.
func text(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return string(b)
}

// describeBeside reports the shape of the model that an engine beside this process loads.
func (a *agent) describeBeside() {
	at := a.o.Fetch.Link
	if at == "" {
		at = filepath.Join(a.o.WeightsDir, a.o.WeightsFile)
	}
	var s *modelfile.Shape
	var err error
	if isFolder(at) {
		s, err = modelfile.FolderShape(os.DirFS(at))
	} else {
		if real, bad := filepath.EvalSymlinks(at); bad == nil && a.o.Fetch.Link != "" {
			at = real // further parts lie beside the file, not beside the link
		}
		s, err = modelfile.FileShape(os.DirFS(filepath.Dir(at)), filepath.Base(at))
	}
	if err != nil {
		a.log.Info("The model's shape can't be read; the engine plans its memory itself", "message", err.Error())
		return
	}
	a.state.describe(shape.Pack(s))
}
