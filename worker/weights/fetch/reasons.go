package fetch

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/weights"
	"github.com/ringfleet/ringfleet/worker/weights/cache"
	"github.com/ringfleet/ringfleet/worker/weights/source"
)

// The reasons of engine.LoadError: those of package weights, and these.
const (
	NotFound       = weights.NotFound
	Truncated      = weights.Truncated
	DigestMismatch = weights.DigestMismatch
	Unsupported    = weights.Unsupported
	// Unauthorized: the source wants credentials, others, or consent to terms.
	Unauthorized = "WeightsUnauthorized"
	// SourceForbidden: the source's address is one that weights are not fetched from.
	SourceForbidden = "WeightsSourceForbidden"
	// SourceUnreachable: no answer from the source, or only ones to try again later.
	SourceUnreachable = "WeightsSourceUnreachable"
	// SourceChanged: the source replaced the file while it was fetched, twice.
	SourceChanged = "WeightsSourceChanged"
	// NoSpace: the cache or its disk has no room.
	NoSpace = "WeightsNoSpace"
	// CacheUnwritable: the cache folder can't be used.
	CacheUnwritable = "WeightsCacheUnwritable"
)

var reasonOf = map[source.Kind]string{
	source.NotFound: NotFound, source.Unauthorized: Unauthorized, source.Forbidden: SourceForbidden,
	source.Unreachable: SourceUnreachable, source.Limited: SourceUnreachable, source.Changed: SourceChanged,
	source.NoRanges: SourceChanged, source.Unusable: Unsupported,
}

// loadError makes of err what a model's status shows; ctx's own error stays what it is.
func loadError(ctx context.Context, err error) error {
	var loaded *engine.LoadError
	var src *source.Error
	var full *cache.NoSpaceError
	var broken *cache.UnwritableError
	switch {
	case errors.As(err, &loaded):
		return loaded
	case errors.As(err, &src):
		return refuse(reasonOf[src.Kind], "%s", src.Says)
	case errors.As(err, &full):
		return refuse(NoSpace, "%s", full.Says)
	case errors.As(err, &broken):
		return refuse(CacheUnwritable, "%s", broken.Says)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

func refuse(reason, format string, args ...any) *engine.LoadError {
	return &engine.LoadError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
