// Package recipe says what each image holds and how it starts. It is pure: the files it names were built,
// fetched or found by others. Every image runs as an unprivileged user on a read-only root file system.
package recipe

import (
	"fmt"
	"path"
	"path/filepath"

	"github.com/ringfleet/ringfleet/hack/image/elfdeps"
	"github.com/ringfleet/ringfleet/hack/image/fetch"
	"github.com/ringfleet/ringfleet/hack/image/oci"
)

// Repository is the part of the images' names before the last slash.
const Repository = "docker.io/ringfleet/"

// ModelName is the full name of the demo model's image. Its tag names the quantisation, since the weights
// do not change with our version.
const ModelName = Repository + "smollm2-135m-instruct:q4_1"

// LlamaDir is where the worker finds the libraries of llama.cpp.
const LlamaDir = "/lib/llama"

// FFI is the library that the worker's binding opens while it runs, so that no header names it.
const FFI = "libffi.so.8"

// user is the user and group of every program: nonroot, by number, so that a kubelet can tell that it is not root.
const user = 65532

// Program is one of our programs.
type Program struct {
	Name    string // of the image, of the binary and of the entry point
	Package string // what is built
	CGO     bool   // linked with the C library
}

// Programs returns our programs that run in containers.
func Programs() []Program {
	return []Program{{"manager", "./controllers", false}, {"router", "./router", false}, {WorkerProgram, "./worker", true}}
}

// Name returns the full name of the image of a program.
func Name(program, version string) string { return Repository + program + ":" + version }

// Static returns the image of a program that needs no shared library. certificates is the file of certificate
// authorities, "" for none.
func Static(program, version, binary, certificates string) oci.Image {
	return oci.Image{
		Name: Name(program, version), Entrypoint: []string{"/" + program}, User: fmt.Sprintf("%d:%d", user, user),
		Env: env(), Labels: labels(program, version),
		Layers: []oci.Layer{base(certificates), {Title: program, Files: []oci.File{{Path: "/" + program, Source: binary, Mode: 0o755}}}},
	}
}

// Fetched is a package and the folder that holds its files.
type Fetched struct {
	Package fetch.Package
	Dir     string
}

// Worker returns the worker's image: its binary, the libraries of llama.cpp, and the shared libraries that both need.
func Worker(version, binary, certificates string, llama Fetched, c elfdeps.Closure) (oci.Image, error) {
	system, _, err := shared(c)
	if err != nil {
		return oci.Image{}, err
	}
	i := Static(WorkerProgram, version, binary, certificates)
	program := i.Layers[1]
	i.Layers = []oci.Layer{i.Layers[0], system, native(llama), program}
	return i, nil
}

// native puts the files of a package where the worker finds the libraries of llama.cpp.
func native(p Fetched) oci.Layer {
	layer := oci.Layer{Title: p.Package.Title}
	for _, f := range p.Package.Files {
		layer.Files = append(layer.Files, oci.File{Path: path.Join(LlamaDir, f.Name), Source: filepath.Join(p.Dir, f.Name)})
	}
	for _, l := range p.Package.Links {
		layer.Files = append(layer.Files, oci.File{Path: path.Join(LlamaDir, l.Name), Link: l.Target})
	}
	return layer
}

// Model returns the demo model's image. The kubelet mounts its files; nothing in it runs.
func Model(weights string, p fetch.Package) oci.Image {
	i := oci.Image{Name: ModelName, Labels: map[string]string{
		"org.opencontainers.image.title": p.Title, "org.opencontainers.image.licenses": "Apache-2.0"}}
	l := oci.Layer{Title: p.Title}
	for _, f := range p.Files {
		l.Files = append(l.Files, oci.File{Path: "/" + f.Name, Source: filepath.Join(weights, f.Name)})
	}
	i.Layers = []oci.Layer{l}
	return i
}

// shared puts the libraries where the dynamic loader looks without a cache: the folder of the C library. The
// loader itself goes to the path that programs name. dir is that folder.
func shared(c elfdeps.Closure) (l oci.Layer, dir string, err error) {
	l.Title = "shared libraries"
	for _, lib := range c.Libraries {
		if lib.Name == "libc.so.6" {
			dir = filepath.Dir(lib.Path)
		}
	}
	if dir == "" || c.Interpreter == "" {
		return l, dir, fmt.Errorf("image of the worker: its binary is not linked with the C library; build it with CGO_ENABLED=1 on a glibc system")
	}
	l.Files = append(l.Files, oci.File{Path: c.Interpreter, Source: c.Interpreter, Mode: 0o755})
	for _, lib := range c.Libraries {
		if lib.Name != path.Base(c.Interpreter) {
			l.Files = append(l.Files, oci.File{Path: path.Join(dir, lib.Name), Source: lib.Path})
		}
	}
	return l, dir, nil
}

func base(certificates string) oci.Layer {
	l := oci.Layer{Title: "base", Files: []oci.File{
		{Path: "/etc/passwd", Content: []byte(fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%[1]d:%[1]d:nonroot:/home/nonroot:/sbin/nologin\n", user))},
		{Path: "/etc/group", Content: []byte(fmt.Sprintf("root:x:0:\nnonroot:x:%d:\n", user))},
		{Path: "/etc/nsswitch.conf", Content: []byte("hosts: files dns\n")},
		{Path: "/home/nonroot", Dir: true, Owner: user, Mode: 0o700},
		{Path: "/tmp", Dir: true, Mode: 0o1777},
	}}
	if certificates != "" {
		l.Files = append(l.Files, oci.File{Path: "/etc/ssl/certs/ca-certificates.crt", Source: certificates})
	}
	return l
}

func env() []string { return []string{"PATH=/", "HOME=/home/nonroot"} }

func labels(program, version string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title": "ringfleet " + program, "org.opencontainers.image.version": version,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
}
