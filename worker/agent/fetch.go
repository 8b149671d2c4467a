package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/worker/weights"
	"github.com/ringfleet/ringfleet/worker/weights/fetch"
)

// errFetched ends a process that only fetches.
var errFetched = errors.New("the weights are there")

// The time after which a source that did not give the weights is asked again: it doubles from the first to the last.
const (
	firstPause = 10 * time.Second
	lastPause  = 5 * time.Minute
)

// weights returns the file to load, fetching it where the options say from where, and the digest that is still to be
// checked.
func (a *agent) weights(ctx context.Context) (path, digest string, err error) {
	if a.o.Fetch.URI == "" && a.o.FetchOnly {
		return a.o.WeightsDir, "", nil // they lie there, and only adapters are fetched
	}
	if a.o.Fetch.URI == "" {
		path, err = weights.Find(a.o.WeightsDir, a.o.WeightsFile)
		return path, a.o.WeightsDigest, err
	}
	path, err = a.fetcher.Ensure(ctx, a.o.Fetch.Request(a.o.WeightsFile, a.o.WeightsDigest), func(p fetch.Progress) {
		a.state.fetching(describeProgress(p))
	})
	if err != nil || a.o.FetchOnly || a.o.Driver == openAI {
		return path, "", err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path, err = weights.Find(path, a.o.WeightsFile)
		return path, "", err
	}
	return path, "", nil
}

// describeProgress is what people and status read while weights are on their way.
func describeProgress(p fetch.Progress) (string, *int) {
	said := map[fetch.Stage]string{
		fetch.Listing: "asking the source for its files", fetch.Waiting: "waiting for another worker that fetches",
		fetch.Fetching: "fetching", fetch.Verifying: "verifying", fetch.Unpacking: "unpacking", fetch.Ready: "the weights are there",
	}[p.Stage]
	if p.File != "" {
		said += " " + p.File
	}
	if p.Total <= 0 {
		return note(said, p), nil
	}
	percent := int(math.Floor(100 * float64(p.Done) / float64(p.Total)))
	said += fmt.Sprintf(", %s of %s", size(p.Done), size(p.Total))
	if p.BytesPerSecond > 0 && p.Stage == fetch.Fetching {
		said += fmt.Sprintf(", %s/s", size(p.BytesPerSecond))
	}
	if p.Left > 0 && p.Stage == fetch.Fetching {
		said += fmt.Sprintf(", %s left", p.Left.Round(time.Second))
	}
	return note(said, p), &percent
}

func note(said string, p fetch.Progress) string {
	if p.Note != "" {
		said += "; " + p.Note
	}
	return said
}

// size writes bytes as people do.
func size(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// await returns when what could not be used may be other: when local files have changed, or, of a source or of a GPU that
// others use too, after a pause. It returns false when ctx has ended.
func (a *agent) await(ctx context.Context, seen string, pause time.Duration) bool {
	list, _ := a.o.Adapters.list() // validated
	if a.o.Fetch.URI != "" || fetches(list) || a.o.GPU.Layers != 0 {
		timer := a.clock.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C():
			return true
		case <-ctx.Done():
			return false
		}
	}
	ticker := a.clock.NewTicker(recheck)
	defer ticker.Stop()
	for a.fingerprint() == seen {
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// fingerprint changes when the weights, the adapters that lie beside them or the container's memory may have.
func (a *agent) fingerprint() string {
	seen := fingerprint(a.o.WeightsDir, a.o.WeightsFile) + a.memory.fingerprint(&a.o)
	list, _ := a.o.Adapters.list() // validated
	for _, x := range list {
		seen += fingerprint(filepath.Join(a.o.WeightsDir, filepath.Dir(x.File)), "")
	}
	return seen
}

// root is the weights' root, below which adapters without a source lie: the folder that is mounted, or that of the weights
// that were fetched to path. A file that is named with folders has its root above them, where they were kept.
func (a *agent) root(path string) string {
	if a.o.Fetch.URI == "" {
		return a.o.WeightsDir
	}
	if isFolder(path) {
		return path
	}
	if file := a.o.WeightsFile; file != "" {
		if root, below := strings.CutSuffix(path, string(filepath.Separator)+filepath.Clean(file)); below {
			return root
		}
	}
	return filepath.Dir(path)
}
