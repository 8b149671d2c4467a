// Command protogen writes the Go code of the contracts in api/*/v1/*.proto. It does what protoc does, with a compiler
// from the module proxy, and decides nothing about the contracts. Run it from the repository's root.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// root is the folder that imports in .proto files start from.
const root = "api"

var plugins = []string{"protoc-gen-go", "protoc-gen-go-grpc"}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	paths, err := filepath.Glob(filepath.Join(root, "*", "v1", "*.proto"))
	if err != nil {
		return err
	}
	names := make([]string, len(paths))
	for i, p := range paths {
		if names[i], err = filepath.Rel(root, p); err != nil {
			return err
		}
	}
	c := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // comments go into the Go code
	}
	files, err := c.Compile(ctx, names...)
	if err != nil {
		return err
	}
	req := &pluginpb.CodeGeneratorRequest{FileToGenerate: names, Parameter: proto.String("paths=source_relative")}
	seen := map[string]bool{}
	for _, f := range files {
		req.ProtoFile = append(req.ProtoFile, withImports(f, seen)...)
	}
	for _, plugin := range plugins {
		if err := generate(ctx, plugin, req); err != nil {
			return err
		}
	}
	return nil
}

// withImports returns f after everything that it imports, as plugins want them.
func withImports(f protoreflect.FileDescriptor, seen map[string]bool) []*descriptorpb.FileDescriptorProto {
	if seen[f.Path()] {
		return nil
	}
	seen[f.Path()] = true
	var out []*descriptorpb.FileDescriptorProto
	for i := range f.Imports().Len() {
		out = append(out, withImports(f.Imports().Get(i).FileDescriptor, seen)...)
	}
	return append(out, protodesc.ToFileDescriptorProto(f))
}

func generate(ctx context.Context, plugin string, req *pluginpb.CodeGeneratorRequest) error {
	in, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "tool", "-modfile=hack/tools.mod", plugin)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w", plugin, err)
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out.Bytes(), &resp); err != nil {
		return fmt.Errorf("read the answer of %s: %w", plugin, err)
	}
	if resp.Error != nil {
		return fmt.Errorf("%s: %s", plugin, resp.GetError())
	}
	for _, f := range resp.File {
		if err := os.WriteFile(filepath.Join(root, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
