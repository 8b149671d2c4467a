package archive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Image is an image of one executable file.
type Image struct {
	Name         string // full name with a tag
	Architecture string // as GOARCH
	File         string // path of the executable, which is also the entry point
	Content      []byte
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    map[string]string `json:"platform,omitempty"`
}

const mediaType = "application/vnd.oci.image."

// Write writes img to w as an OCI archive; the same image gives the same bytes.
func Write(w io.Writer, img Image) error {
	layer, err := layerOf(img)
	if err != nil {
		return err
	}
	platform := map[string]string{"architecture": img.Architecture, "os": "linux"}
	blobs := [][]byte{layer}
	add := func(kind string, v any) (descriptor, error) {
		text, err := json.Marshal(v)
		blobs = append(blobs, text)
		return describe(kind, text), err
	}
	config, err := add("config.v1+json", map[string]any{"architecture": img.Architecture, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{img.File}, "User": "65535:65535"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}}})
	if err != nil {
		return fmt.Errorf("encode the config of %s: %w", img.Name, err)
	}
	manifest, err := add("manifest.v1+json", map[string]any{"schemaVersion": 2, "mediaType": mediaType + "manifest.v1+json",
		"config": config, "layers": []descriptor{describe("layer.v1.tar", layer)}})
	if err != nil {
		return fmt.Errorf("encode the manifest of %s: %w", img.Name, err)
	}
	manifest.Platform = platform
	manifest.Annotations = map[string]string{"io.containerd.image.name": img.Name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": mediaType + "index.v1+json",
		"manifests": []descriptor{manifest}})
	if err != nil {
		return fmt.Errorf("encode the index of %s: %w", img.Name, err)
	}
	return writeLayout(w, index, blobs)
}

func writeLayout(w io.Writer, index []byte, blobs [][]byte) error {
	t := tar.NewWriter(w)
	err := put(t, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`))
	if err == nil {
		err = put(t, "index.json", 0o644, index)
	}
	for _, b := range blobs {
		if err == nil {
			err = put(t, "blobs/sha256/"+digest(b)[len("sha256:"):], 0o644, b)
		}
	}
	if err == nil {
		err = t.Close()
	}
	if err != nil {
		return fmt.Errorf("write the image archive: %w", err)
	}
	return nil
}

func layerOf(img Image) ([]byte, error) {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	err := put(t, img.File[1:], 0o755, img.Content)
	if err == nil {
		err = t.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("write the layer of %s: %w", img.Name, err)
	}
	return b.Bytes(), nil
}

func put(t *tar.Writer, name string, mode int64, content []byte) error {
	h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0)}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := t.Write(content)
	return err
}

func describe(kind string, blob []byte) descriptor {
	return descriptor{MediaType: mediaType + kind, Digest: digest(blob), Size: len(blob)}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}
