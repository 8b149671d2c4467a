package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/ringfleet/ringfleet/hack/cluster/archive"
	"github.com/ringfleet/ringfleet/hack/cluster/config"
)

// EnsurePause returns the image archive of the pod sandbox, and makes it when it is not there.
func (b Builder) EnsurePause(ctx context.Context) (string, error) {
	dir, err := b.Ensure(ctx, Pause())
	if err != nil {
		return "", err
	}
	target := filepath.Join(dir, "pause.tar")
	if exists(target) {
		return target, nil
	}
	content, err := os.ReadFile(filepath.Join(dir, "pause"))
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "pause-*.new")
	if err != nil {
		return "", err
	}
	err = archive.Write(f, archive.Image{Name: config.PauseImage, Architecture: runtime.GOARCH, File: "/pause", Content: content})
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	if err := os.Rename(f.Name(), target); err != nil {
		return "", fmt.Errorf("keep the pause image: %w", err)
	}
	return target, nil
}
