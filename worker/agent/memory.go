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
	// swap is what the container may have beyond bytes before it is killed.
	swap uint64
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
		least.MemoryBytes += r.swap
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
			memoryplan.Size(sure.Devices[0].Total()), r.limit(), v.says)
	case v.short && r.gpus == 0:
		v.says += "; weights beyond the limit are read from the disk again with every step"
	case !v.refused && r.gpus > 0 && r.free < r.bytes:
		return occupied(s, o, least, r, t, v)
	}
	return v, nil
}

// limit is the container's limit for people.
func (r *room) limit() string {
	if r.swap == 0 {
		return memoryplan.Size(r.bytes)
	}
	return memoryplan.Size(r.bytes) + " and " + memoryplan.Size(r.swap) + " of swap"
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
		return m.container()
	case o.GPU.Layers > 0 && o.GPU.Layers <= layers, o.GPU.TensorSplit != "", m.gpus == nil:
		return room{} // a part of the model, shares that are no plan's, or unknown devices
	}
	one := llamacpp.Split(o.GPU.Split) == llamacpp.SplitNone // whose number is the library's, and may be another here
	r := room{bound: true}
	for _, d := range m.gpus.Snapshot().Devices {
		bytes, used := d.MemoryBytes, d.UsedBytes
		if len(d.Parts) > 0 { // CUDA gives a process one part of a GPU
			bytes, used = d.Parts[0].MemoryBytes, &d.Parts[0].UsedBytes
		}
		free := bytes
		if used != nil {
			free -= min(*used, bytes)
		}
		switch {
		case !one:
			r.gpus, r.bytes, r.free = r.gpus+1, max(r.bytes, bytes), max(r.free, free)
		case r.gpus == 0 || free > r.free:
			r.gpus, r.bytes, r.free = 1, bytes, free
		}
		if len(d.Parts) > 0 {
			break
		}
	}
	return r
}

// fingerprint changes when the container's memory does: a pod may be resized while it runs.
func (m *memory) fingerprint(o *Options) string {
	if o.GPU.Layers != 0 {
		return ""
	}
	return fmt.Sprintf("%+v\n", m.container())
}

// container asks for the room of this process's container.
func (m *memory) container() room {
	if m.root == nil {
		return containerRoom(os.DirFS("/"))
	}
	return containerRoom(m.root)
}

// containerRoom is the least of the limits of this process's control groups (version 2), or else the machine's memory, beyond
// which nothing is sure. What a group may swap counts towards what kills it; where that is all that the machine has, nothing
// is sure either.
func containerRoom(root fs.FS) room {
	machine, swap := machineBytes(root, "MemTotal"), machineBytes(root, "SwapTotal")
	r, killed := room{bytes: machine}, uint64(0) // 0: at no size that is known
	own := ""
	for line := range strings.Lines(text(root, "proc/self/cgroup")) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			own = p
		}
	}
	for p := path.Clean("/" + own); ; p = path.Dir(p) {
		if limit, limited := groupLimit(root, p, "memory.max"); limited && (machine == 0 || limit < machine) {
			if r.bytes == 0 || limit < r.bytes {
				r.bytes = limit
			}
			more, known := groupLimit(root, p, "memory.swap.max")
			sum := limit + min(more, swap)
			if (known || swap == 0) && (killed == 0 || sum < killed) {
				killed = sum
			}
		}
		if p == "/" {
			break
		}
	}
	if r.bound = killed > 0; r.bound {
		r.swap = killed - r.bytes
	}
	return r
}

// groupLimit reads a limit of a control group; "max", and no file, are none.
func groupLimit(root fs.FS, group, name string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(text(root, path.Join("sys/fs/cgroup", group, name))), 10, 64)
	return n, err == nil
}

// machineBytes is a size of the machine, by its name in /proc/meminfo; 0: unknown.
func machineBytes(root fs.FS, name string) uint64 {
	for line := range strings.Lines(text(root, "proc/meminfo")) {
		var kib uint64
		if n, _ := fmt.Sscanf(line, name+": %d kB", &kib); n == 1 {
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
	var s *modelfile.Reading
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
	a.state.describe(shape.Pack(s.Shape))
}
