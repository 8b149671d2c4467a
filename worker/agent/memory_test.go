package agent

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/ringfleet/ringfleet/api/memoryplan"
	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/api/modelfile/ggufgen"
	"github.com/ringfleet/ringfleet/api/worker/shape"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/gpu"
)

const gib = 1 << 30

// eight is the shape of Llama-3.1-8B in BF16: 15 GiB, and 128 KiB for a token.
func eight(t *testing.T) *modelfile.Shape {
	t.Helper()
	s, err := modelfile.ConfigShape([]byte(`{"model_type":"llama","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
		"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256,"max_position_embeddings":131072,"torch_dtype":"bfloat16"}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOnlyWhatCantWorkIsRefusedAndWhatMayBeTooMuchIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		room    room
		context int
		refused bool
		short   bool
		says    string
	}{
		"a cache that may be swapped out": {room{bytes: 4 * gib, bound: true, swap: 8 * gib}, 65536, false, true, "a worker needs"},
		"a cache beyond limit and swap": {room{bytes: 4 * gib, bound: true, swap: 2 * gib}, 65536, true, true,
			"and the container's limit is 4096 MiB and 2048 MiB of swap"},
		"a container with room for all":                {room{bytes: 24 * gib, bound: true}, 8192, false, false, "a worker needs"},
		"weights beyond the limit are only read again": {room{bytes: 4 * gib, bound: true}, 8192, false, true, "weights beyond the limit are read from the disk again"},
		"a cache beyond the limit would kill": {room{bytes: 4 * gib, bound: true}, 65536, true, true,
			"the worker would be killed: its KV cache and buffers alone take 8"},
		"without a limit nothing is sure":         {room{bytes: 4 * gib}, 65536, false, true, "a worker needs"},
		"a GPU with room for all":                 {room{gpus: 1, bytes: 24 * gib, bound: true, free: 24 * gib}, 8192, false, false, "a worker's GPU needs"},
		"a GPU that is too small":                 {room{gpus: 1, bytes: 15 * gib, bound: true, free: 15 * gib}, 8192, true, true, "a larger GPU, such as NVIDIA-A10"},
		"a GPU where only the allowance is short": {room{gpus: 1, bytes: 17 * gib, bound: true, free: 17 * gib}, 8192, false, true, "a worker's GPU needs"},
		"two GPUs":                       {room{gpus: 2, bytes: 12 * gib, bound: true, free: 12 * gib}, 8192, false, false, "the fullest of a worker's 2 GPUs"},
		"a GPU that others use":          {room{gpus: 1, bytes: 24 * gib, bound: true, free: 8 * gib}, 8192, true, true, "other processes have 16.0 GiB of the GPU's 24.0 GiB"},
		"a GPU that others use a little": {room{gpus: 1, bytes: 24 * gib, bound: true, free: 23 * gib}, 8192, false, false, "a worker's GPU needs"},
		"a GPU that others use all of":   {room{gpus: 1, bytes: 24 * gib, bound: true, free: 0}, 8192, true, true, "other processes have 24.0 GiB"},
	} {
		o := parse(t, nil, "--model=m", "--namespace=n")
		o.ContextTokens = c.context
		v, err := judge(eight(t), o.memory(c.room), c.room, o.terms())
		if err != nil || v.refused != c.refused || v.short != c.short || !strings.Contains(v.says, c.says) {
			t.Errorf("%s: %+v, %v; want refused %t, short %t, %q", name, v, err, c.refused, c.short, c.says)
		}
		if c.short && !strings.Contains(v.says, "enough") {
			t.Errorf("%s: no way is named: %s", name, v.says)
		}
	}
}

func TestARefusalNamesWhatToChangeInTheObjects(t *testing.T) {
	o := parse(t, nil, "--model=m", "--namespace=n", "--context-tokens=65536")
	r := room{bytes: 22 * gib, bound: true}
	v, err := judge(eight(t), o.memory(r), r, o.terms())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"engine.kvCacheType: Q8", "engine.contextTokens: ", "workerResources.limits.memory: "} {
		if !strings.Contains(v.says, want) {
			t.Errorf("%q lacks %q", v.says, want)
		}
	}
	o.GPU.Split = "row"
	r = room{gpus: 2, bytes: 10 * gib, bound: true, free: 10 * gib}
	if v, err = judge(eight(t), o.memory(r), r, o.terms()); err != nil || !v.refused || !strings.Contains(v.says, "parallelism.tensor: ") {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestTheRoomIsTheLeastLimitOfTheControlGroups(t *testing.T) {
	const machine = "MemTotal:       16777216 kB\nMemFree: 1 kB\nSwapTotal: 0 kB\n"
	const swaps = "MemTotal:       16777216 kB\nSwapTotal: 4194304 kB\n"
	limits := func(meminfo, max, swap string) map[string]string {
		return map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": max + "\n", "sys/fs/cgroup/memory.swap.max": swap + "\n"}
	}
	nested := limits(swaps, "max", "max")
	nested["proc/self/cgroup"] = "0::/pod/box\n"
	nested["sys/fs/cgroup/pod/memory.max"], nested["sys/fs/cgroup/pod/memory.swap.max"] = "4294967296", "0"
	nested["sys/fs/cgroup/pod/box/memory.max"], nested["sys/fs/cgroup/pod/box/memory.swap.max"] = "2147483648", "max"
	for name, c := range map[string]struct {
		files map[string]string
		want  room
	}{
		"no swap for the group":                  {limits(swaps, "2147483648", "0"), room{bytes: 2 * gib, bound: true}},
		"some swap":                              {limits(swaps, "2147483648", "1073741824"), room{bytes: 2 * gib, bound: true, swap: gib}},
		"more swap than the machine has":         {limits(swaps, "2147483648", "99999999999999"), room{bytes: 2 * gib, bound: true, swap: 4 * gib}},
		"any swap":                               {limits(swaps, "2147483648", "max"), room{bytes: 2 * gib}},
		"any swap on a machine that has none":    {limits(machine, "2147483648", "max"), room{bytes: 2 * gib, bound: true}},
		"any swap in a group that has a limit":   {nested, room{bytes: 2 * gib, bound: true, swap: 2 * gib}},
		"a container":                            {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2147483648\n"}, room{bytes: 2 * gib, bound: true}},
		"no limit":                               {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, room{bytes: 16 * gib}},
		"no control groups":                      {map[string]string{}, room{bytes: 16 * gib}},
		"version 1":                              {map[string]string{"proc/self/cgroup": "4:memory:/a\n0::/\n"}, room{bytes: 16 * gib}},
		"a limit of the machine's size and more": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "99999999999999\n"}, room{bytes: 16 * gib}},
		"a group without a namespace of its own": {map[string]string{"proc/self/cgroup": "0::/kube/pod/box\n", "sys/fs/cgroup/kube/pod/box/memory.max": "max\n",
			"sys/fs/cgroup/kube/pod/memory.max": "1073741824\n", "sys/fs/cgroup/kube/memory.max": "8589934592\n"}, room{bytes: gib, bound: true}},
	} {
		root := fstest.MapFS{"proc/meminfo": {Data: []byte(machine)}}
		for path, text := range c.files {
			root[path] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := containerRoom(root); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if got := containerRoom(fstest.MapFS{}); got != (room{}) {
		t.Errorf("of nothing %+v is known", got)
	}
}

// fixed are GPUs as a test has them.
type fixed []gpu.Reading

func (f fixed) Snapshot() gpu.Snapshot           { return gpu.Snapshot{Devices: f} }
func (f fixed) Health(context.Context) error     { return nil }
func (f fixed) Close() error                     { return nil }
func reading(bytes, used uint64) (r gpu.Reading) { r.MemoryBytes, r.UsedBytes = bytes, &used; return r }

func TestTheRoomOfGPUsIsWhatTheyHave(t *testing.T) {
	sliced := reading(80*gib, 0)
	sliced.Parts = []gpu.Part{{MemoryBytes: 40 * gib, UsedBytes: gib}, {MemoryBytes: 40 * gib}}
	unknown := gpu.Reading{Device: gpu.Device{MemoryBytes: 24 * gib}}
	for name, c := range map[string]struct {
		gpus fixed
		args []string
		want room
	}{
		"one":                      {fixed{reading(24*gib, 0)}, nil, room{gpus: 1, bytes: 24 * gib, bound: true, free: 24 * gib}},
		"one of several":           {fixed{reading(24*gib, 20*gib), reading(80*gib, 0), reading(80*gib, 8*gib)}, []string{"--gpu-split=none", "--gpu-main=2"}, room{gpus: 1, bytes: 80 * gib, bound: true, free: 80 * gib}},
		"shares by hand":           {fixed{reading(24*gib, 0), reading(80*gib, 0)}, []string{"--gpu-tensor-split=1,3"}, room{}},
		"several, some used":       {fixed{reading(24*gib, 20*gib), reading(24*gib, 4*gib)}, nil, room{gpus: 2, bytes: 24 * gib, bound: true, free: 20 * gib}},
		"a part":                   {fixed{sliced}, nil, room{gpus: 1, bytes: 40 * gib, bound: true, free: 39 * gib}},
		"use is unknown":           {fixed{unknown}, nil, room{gpus: 1, bytes: 24 * gib, bound: true, free: 24 * gib}},
		"the model is on one":      {fixed{reading(24*gib, 0), reading(24*gib, 0)}, []string{"--gpu-split=none"}, room{gpus: 1, bytes: 24 * gib, bound: true, free: 24 * gib}},
		"a part of the model":      {fixed{reading(24*gib, 0)}, []string{"--gpu-layers=10"}, room{}},
		"as many layers as it has": {fixed{reading(24*gib, 0)}, []string{"--gpu-layers=33"}, room{gpus: 1, bytes: 24 * gib, bound: true, free: 24 * gib}},
		"none":                     {nil, nil, room{bound: true}},
	} {
		o := parse(t, nil, append([]string{"--model=m", "--namespace=n", "--gpu-layers=-1"}, c.args...)...)
		m := memory{gpus: c.gpus}
		if got := m.room(&o, 32); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	o := parse(t, nil, "--model=m", "--namespace=n", "--gpu-layers=-1")
	if got := (&memory{}).room(&o, 32); got != (room{}) {
		t.Errorf("without a driver %+v is known", got)
	}
}

// golden puts a whole small model in place of the weights.
func golden(t *testing.T, dir string) {
	t.Helper()
	m := ggufgen.Golden()
	if err := m.WriteFile(filepath.Join(dir, "w.gguf")); err != nil {
		t.Fatal(err)
	}
}

// limited is a container with a limit.
func limited(bytes string) fstest.MapFS {
	return fstest.MapFS{"proc/self/cgroup": {Data: []byte("0::/\n")}, "sys/fs/cgroup/memory.max": {Data: []byte(bytes + "\n")}}
}

// startIn is start in a machine whose file system is root.
func startIn(t *testing.T, root fs.FS, open func(string, func(int)) (*engine.Loaded, error), change func(*Options)) *process {
	t.Helper()
	return startBy(t, open, change, func(a *agent, ctx context.Context) error {
		a.memory.root = root
		return a.run(ctx)
	})
}

func TestAWorkerThatWouldBeKilledSaysSoInsteadAndReportsTheModelsShape(t *testing.T) {
	p := startIn(t, limited("536870912"), device(sim.Options{Text: "x"}), func(o *Options) {
		o.ContextTokens = 262144 // of 2 KiB each: 512 MiB
		golden(t, o.WeightsDir)
	})
	waitFor(t, "the refusal", func() bool { return p.stage() == workerv1.Stage_STAGE_FAILED })
	h := getHealth(t, p.a.o.HTTPAddress)
	if h.Reason != memoryShort || !strings.Contains(h.Message, "would be killed") || !strings.Contains(h.Message, "limit is 512 MiB") ||
		!strings.Contains(h.Message, "engine.contextTokens: ") {
		t.Errorf("health is %+v", h)
	}
	watch, err := p.router().Watch(within(t), &workerv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := watch.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := shape.Unpack(r.GetShape()); err != nil || len(s.Layers) != 4 || s.Architecture != "llama" || s.WeightBytes == 0 {
		t.Errorf("the reported shape is %+v, %v", s, err)
	}
}

// changing is a file system whose content a test replaces.
type changing struct{ now atomic.Pointer[fstest.MapFS] }

func (c *changing) Open(name string) (fs.File, error) { return c.now.Load().Open(name) }

func TestAWorkerWithoutRoomLoadsWhenItsContainerIsResized(t *testing.T) {
	small, large := limited("536870912"), limited("1073741824")
	root := &changing{}
	root.now.Store(&small)
	p := startIn(t, root, device(sim.Options{Text: "x"}), func(o *Options) {
		o.ContextTokens = 262144 // of 2 KiB each: 512 MiB
		golden(t, o.WeightsDir)
	})
	waitFor(t, "the refusal", func() bool { return p.stage() == workerv1.Stage_STAGE_FAILED })
	root.now.Store(&large)
	waitFor(t, "the load", func() bool {
		p.clock.Step(recheck)
		return p.stage() == workerv1.Stage_STAGE_LOADED
	})
}

func TestAWorkerWithRoomLoadsAndReportsTheModelsShape(t *testing.T) {
	p := startIn(t, limited("1073741824"), device(sim.Options{Text: "x"}), func(o *Options) { golden(t, o.WeightsDir) })
	waitFor(t, "the load", func() bool { return p.stage() == workerv1.Stage_STAGE_LOADED })
	if now, _ := p.a.state.Status(); now.Shape.GetLayers()[0].GetCount() != 4 {
		t.Errorf("the shape is %v", now.Shape)
	}
}

func TestTheShapeOfAnEnginesModelIsReadFromItsFolder(t *testing.T) {
	const config = `{"model_type":"llama","hidden_size":64,"intermediate_size":128,"num_hidden_layers":7,"num_attention_heads":4,"vocab_size":300,"torch_dtype":"bfloat16"}`
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	file, link := t.TempDir(), filepath.Join(t.TempDir(), "weights")
	golden(t, file)
	if err := os.Symlink(filepath.Join(file, "w.gguf"), link); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Options)
		layers uint32
	}{
		"a folder":             {func(o *Options) { o.WeightsDir = folder }, 7},
		"a file in a folder":   {func(o *Options) { o.WeightsDir, o.WeightsFile = file, "w.gguf" }, 4},
		"what a link leads to": {func(o *Options) { o.Fetch.Link = link }, 4},
		"nothing":              {func(o *Options) { o.WeightsDir = t.TempDir() }, 0},
	} {
		p := start(t, nil, func(o *Options) {
			beside(o)
			o.Server.URL, o.Fetch.CacheDir = "http://"+free(t), t.TempDir()
			c.change(o)
		})
		waitFor(t, "the engine is waited for", func() bool {
			p.clock.Step(serverInterval)
			now, _ := p.a.state.Status()
			return strings.Contains(now.Message, "the engine starts")
		})
		now, _ := p.a.state.Status()
		var layers uint32
		for _, l := range now.Shape.GetLayers() {
			layers += l.GetCount()
		}
		if layers != c.layers {
			t.Errorf("%s: %d layers are reported, want %d", name, layers, c.layers)
		}
	}
}

func TestTheWorkersPlanCountsTheRoomOfTheCacheOnce(t *testing.T) {
	o := parse(t, nil, "--model=m", "--namespace=n", "--context-tokens=8192", "--max-sequences=16", "--kv-cache-type=Q8")
	p, err := memoryplan.New(eight(t), o.memory(room{bytes: 64 * gib}))
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Devices[0]; d.KV != 8192*p.TokenBytes || p.Options.Sequences != 32 || p.Options.KV != memoryplan.Q8 {
		t.Errorf("planned %+v of %+v", d, p.Options)
	}
}
