package command

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringfleet/ringfleet/api/memoryplan"
	"github.com/ringfleet/ringfleet/api/modelfile"
)

// planOptions are what the user asks of the plan.
type planOptions struct {
	accelerator string
	memoryMiB   uint64
	gpus        int // auto: the fewest that do
	context     int
	sequences   int
	kv          string
	engine      string
	step        int
	percent     int
	output      string
}

// auto lets the plan choose the number of GPUs.
const auto = -1

// What is planned where the user doesn't say.
const (
	planContext   = 8192
	planSequences = 16
)

func planCommand(s Streams) *cobra.Command {
	o := planOptions{}
	cmd := &cobra.Command{
		Use:   "plan PATH",
		Short: "Say how much memory a model takes, and how many GPUs and sequences go together",
		Long: "Say how much memory a model takes on each GPU, how many GPUs it needs, how many sequences of what length fit, and " +
			"what to change where they don't; then it ends with exit code 1. PATH is a GGUF file (of parts, the first), a config.json of Hugging Face, a safetensors " +
			"file or index beside one, or a folder with any of these. Only heads of files are read, and no cluster is asked.",
		Example: "  kubectl ringfleet plan Llama-3.1-70B/ --accelerator NVIDIA-H100-80GB-HBM3\n" +
			"  kubectl ringfleet plan model-Q4_K_M.gguf --accelerator NVIDIA-L4 --gpus 1 --context-tokens 32768 --sequences 4\n" +
			"  kubectl ringfleet plan smollm2.gguf --gpus 0 --memory-mib 2048 -o json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeModelFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			m, err := readModel(args[0])
			if err != nil {
				return err
			}
			r, err := makeReport(m, o)
			if err != nil {
				return err
			}
			if o.output == "json" {
				e := json.NewEncoder(s.Out)
				e.SetIndent("", "  ")
				if err := e.Encode(r.json()); err != nil {
					return err
				}
			} else {
				printReport(s.Out, r)
			}
			if !r.plan.Fits {
				return fmt.Errorf("the model doesn't fit: %w", errAnswered)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.accelerator, "accelerator", "", "the GPU, as the node's label nvidia.com/gpu.product has it")
	f.Uint64Var(&o.memoryMiB, "memory-mib", 0, "memory of each GPU in MiB, instead of --accelerator; with --gpus 0 that of the container")
	f.IntVar(&o.gpus, "gpus", auto, "how many GPUs share the model; 0: none, -1: the fewest that do")
	f.IntVar(&o.context, "context-tokens", 0, "length of each sequence, prompt and output together (the model's, at most 8192)")
	f.IntVar(&o.sequences, "sequences", planSequences, "how many sequences run at a time")
	f.StringVar(&o.kv, "kv-type", string(memoryplan.F16), "numbers of the KV cache: F16, Q8 (llama.cpp) or FP8 (vLLM)")
	f.StringVar(&o.engine, "engine", "", "what runs the model: llamacpp or vllm (llamacpp for GGUF, else vllm)")
	f.IntVar(&o.step, "step-tokens", 0, "tokens computed at a time (the engine's default)")
	f.IntVar(&o.percent, "use-percent", 0, "how much of the memory is planned (90)")
	f.StringVarP(&o.output, "output", "o", "", "json, or a table where it is left out")
	complete := func(flag string, of func() []string) {
		// The error is that of a flag that isn't there.
		_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return of(), cobra.ShellCompDirectiveNoFileComp
		})
	}
	complete("accelerator", acceleratorNames)
	complete("kv-type", func() []string {
		return []string{string(memoryplan.F16), string(memoryplan.Q8), string(memoryplan.FP8)}
	})
	complete("engine", func() []string { return []string{string(memoryplan.LlamaCpp), string(memoryplan.VLLM)} })
	complete("output", func() []string { return []string{"json"} })
	return cmd
}

// completeModelFiles offers files and folders that may describe a model.
func completeModelFiles(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []cobra.Completion{"gguf", "json", "safetensors"}, cobra.ShellCompDirectiveFilterFileExt
}

func acceleratorNames() []string {
	var names []string
	for _, a := range memoryplan.Accelerators {
		names = append(names, a.Name)
	}
	return names
}

// report is what the command prints.
type report struct {
	model model
	gpu   string // its name; "" where only its size is known
	plan  *memoryplan.Plan
	grid  []gridRow
}

// gridRow is how many sequences of each length fit on a number of GPUs.
type gridRow struct {
	GPUs      int            `json:"gpus"`
	Sequences []gridSequence `json:"sequences"`
}

type gridSequence struct {
	ContextTokens int `json:"contextTokens"`
	Most          int `json:"most"`
}

// makeReport plans m as o asks.
func makeReport(m model, o planOptions) (*report, error) {
	q, gpu, err := o.question(m)
	if err != nil {
		return nil, err
	}
	var plan *memoryplan.Plan
	if o.gpus == auto {
		plan, err = fewest(m.shape, q)
	} else {
		plan, err = memoryplan.New(m.shape, q)
	}
	if err != nil {
		return nil, err
	}
	return &report{model: m, gpu: gpu, plan: plan, grid: grid(m.shape, plan)}, nil
}

// question turns flags into the plan's options, of which the number of GPUs may be auto, and the GPU's name.
func (o planOptions) question(m model) (q memoryplan.Options, gpu string, err error) {
	q = memoryplan.Options{
		Engine: m.engine, GPUs: o.gpus, MemoryBytes: o.memoryMiB << 20, ContextTokens: o.context, Sequences: o.sequences,
		KV: memoryplan.KVType(strings.ToUpper(o.kv)), StepTokens: o.step, UsePercent: o.percent,
	}
	if o.engine != "" {
		q.Engine = memoryplan.Engine(strings.ToLower(o.engine))
	}
	if q.ContextTokens == 0 {
		q.ContextTokens = planContext
		if c := m.shape.Context; c > 0 {
			q.ContextTokens = min(c, planContext)
		}
	}
	switch {
	case o.output != "" && o.output != "json":
		return q, "", fmt.Errorf("plan: -o is %q, expected json", o.output)
	case o.memoryMiB > 1<<30:
		return q, "", fmt.Errorf("plan: --memory-mib is %d, expected at most %d", o.memoryMiB, 1<<30)
	case o.accelerator != "" && o.memoryMiB > 0:
		return q, "", fmt.Errorf("plan: --accelerator and --memory-mib both say how much memory there is; give one")
	case o.gpus == 0 && o.memoryMiB == 0:
		return q, "", fmt.Errorf("plan: without a GPU, --memory-mib must say how much memory the container has")
	case o.memoryMiB > 0:
		return q, "", nil
	case o.accelerator == "":
		return q, "", fmt.Errorf("plan: --accelerator or --memory-mib must say which GPU it is. Known are %s", strings.Join(acceleratorNames(), ", "))
	}
	i := slices.IndexFunc(memoryplan.Accelerators, func(a memoryplan.Accelerator) bool { return strings.EqualFold(a.Name, o.accelerator) })
	if i < 0 {
		return q, "", fmt.Errorf("plan: the accelerator %q is unknown: give --memory-mib instead (a node's label nvidia.com/gpu.memory has it). Known are %s",
			o.accelerator, strings.Join(acceleratorNames(), ", "))
	}
	q.MemoryBytes = memoryplan.Accelerators[i].MiB << 20
	return q, memoryplan.Accelerators[i].Name, nil
}

// fewest plans for the fewest GPUs that do; where none do, for the most that can share the model.
func fewest(s *modelfile.Shape, q memoryplan.Options) (*memoryplan.Plan, error) {
	q.GPUs = 1
	plan, err := memoryplan.New(s, q)
	if err != nil || plan.Fits {
		return plan, err
	}
	for _, w := range plan.Ways {
		if w.Change == memoryplan.MoreGPUs {
			q.GPUs = int(w.Value)
			return memoryplan.New(s, q)
		}
	}
	return plan, nil
}

// grid says how many sequences of usual lengths fit on the plan's GPUs and on twice and four times as many.
func grid(s *modelfile.Shape, p *memoryplan.Plan) []gridRow {
	var rows []gridRow
	for _, n := range []int{p.Options.GPUs, 2 * p.Options.GPUs, 4 * p.Options.GPUs} {
		row := gridRow{GPUs: n}
		for _, tokens := range lengths(s, p) {
			q := p.Options
			q.GPUs, q.ContextTokens, q.Sequences = n, tokens, 1
			got, err := memoryplan.New(s, q)
			if err != nil {
				break // so many GPUs can't share it
			}
			row.Sequences = append(row.Sequences, gridSequence{tokens, got.MostSequences})
		}
		if row.Sequences != nil && (len(rows) == 0 || n > 0) {
			rows = append(rows, row)
		}
	}
	return rows
}

// lengths are the columns of the grid: up to the model's context, or to what is asked where that is longer.
func lengths(s *modelfile.Shape, p *memoryplan.Plan) []int {
	most := max(p.Options.ContextTokens, s.Context)
	columns := []int{p.Options.ContextTokens}
	for _, n := range []int{2048, 8192, 32768, 131072, 1 << 20} {
		if n <= most && n != p.Options.ContextTokens {
			columns = append(columns, n)
		}
	}
	slices.Sort(columns)
	return columns
}
