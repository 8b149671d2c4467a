package oci

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// annotations by which containerd and others know an image's name.
const (
	containerdName = "io.containerd.image.name"
	refName        = "org.opencontainers.image.ref.name"
)

// Write writes img as an OCI archive to file under the full name, and returns the digest of its manifest. A
// failed write leaves an older file as it was.
func Write(file, name string, img v1.Image) (v1.Hash, error) {
	digest, err := img.Digest()
	if err != nil {
		return digest, err
	}
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return digest, fmt.Errorf("write the archive of %s: %w", name, err)
	}
	defer os.Remove(f.Name()) // gone after the rename
	err = errors.Join(writeArchive(f, name, img), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return digest, fmt.Errorf("write the archive of %s: %w", name, err)
	}
	return digest, nil
}

func writeArchive(w io.Writer, name string, img v1.Image) error {
	index, err := index(name, img)
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	put := func(file string, size int64, content io.Reader) error {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: file, Mode: 0o644, Size: size, ModTime: epoch, Format: tar.FormatUSTAR}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.Copy(t, content)
		return err
	}
	putBytes := func(file string, b []byte) error { return put(file, int64(len(b)), bytes.NewReader(b)) }
	manifest, err := img.RawManifest()
	if err != nil {
		return err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	err = errors.Join(putBytes("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)), putBytes("index.json", index),
		putBytes(blob(manifest), manifest), putBytes(blob(config), config))
	if err != nil {
		return err
	}
	if err := putLayers(img, put); err != nil {
		return err
	}
	return t.Close()
}

func putLayers(img v1.Image, put func(string, int64, io.Reader) error) error {
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	seen := map[v1.Hash]bool{}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			return err
		}
		if seen[digest] {
			continue
		}
		seen[digest] = true
		size, err := l.Size()
		if err != nil {
			return err
		}
		content, err := l.Compressed()
		if err != nil {
			return err
		}
		if err := errors.Join(put(blobPath(digest), size, content), content.Close()); err != nil {
			return err
		}
	}
	return nil
}

func index(name string, img v1.Image) ([]byte, error) {
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	size, err := img.Size()
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	return json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{{
		MediaType: types.OCIManifestSchema1, Digest: digest, Size: size,
		Platform:    &v1.Platform{OS: config.OS, Architecture: config.Architecture},
		Annotations: map[string]string{containerdName: name, refName: name},
	}}})
}

func blobPath(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

func blob(b []byte) string {
	h, _, _ := v1.SHA256(bytes.NewReader(b)) // reading memory does not fail
	return blobPath(h)
}
