// Package archive reads which images an OCI or Docker archive holds, and writes archives of one file. It
// knows no registry and no containerd.
package archive

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// maxIndex bounds the JSON that names the images of an archive, in bytes.
const maxIndex = 4 << 20

// Names returns the full names of the images in the archive at file, sorted. An image whose name a kubelet
// would not find is an error.
func Names(file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the image archive: %w", err)
	}
	defer func() { _ = f.Close() }()
	names, err := names(f)
	if err != nil {
		return nil, fmt.Errorf("image archive %s: %w", file, err)
	}
	return names, nil
}

func names(r io.Reader) ([]string, error) {
	var out []string
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("not a tar archive: %w", err)
		}
		var parse func([]byte) ([]string, error)
		switch path.Clean(h.Name) {
		case "index.json":
			parse = fromIndex
		case "manifest.json":
			parse = fromManifest
		default:
			continue
		}
		text, err := io.ReadAll(io.LimitReader(t, maxIndex))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", h.Name, err)
		}
		found, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		out = append(out, found...)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) == 0 {
		return nil, errors.New("no image is named: set annotation io.containerd.image.name in index.json")
	}
	for _, n := range out {
		if host, _, found := strings.Cut(n, "/"); !found || !strings.ContainsAny(host, ".:") && host != "localhost" {
			return nil, fmt.Errorf("image %q: want the full name, such as docker.io/ringfleet/manager:v1", n)
		}
	}
	return out, nil
}

func fromIndex(text []byte) ([]string, error) {
	var index struct {
		Manifests []struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"manifests"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, err
	}
	var out []string
	for _, m := range index.Manifests {
		if n := m.Annotations["io.containerd.image.name"]; n != "" {
			out = append(out, n)
		}
	}
	return out, nil
}

// fromManifest reads what docker save writes; its short names mean docker.io.
func fromManifest(text []byte) ([]string, error) {
	var manifest []struct {
		RepoTags []string
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return nil, err
	}
	var out []string
	for _, m := range manifest {
		for _, tag := range m.RepoTags {
			out = append(out, full(tag))
		}
	}
	return out, nil
}

func full(name string) string {
	host, _, found := strings.Cut(name, "/")
	switch {
	case !found:
		return "docker.io/library/" + name
	case strings.ContainsAny(host, ".:") || host == "localhost":
		return name
	}
	return "docker.io/" + name
}
