// Package step is how the controllers act: a reconcile is a list of named steps, children are applied by one call and
// a status is written by one call. It decides whether a write is needed, and never what is written.
package step

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Step is one named part of a reconcile over the state S, which it may extend for the steps after it.
type Step[S any] struct {
	// Name says what the step does, as in "observe workers". Errors begin with it.
	Name string
	Do   func(ctx context.Context, s S) error
}

// Run does steps in order and stops at the first error, which then names its step.
func Run[S any](ctx context.Context, s S, steps ...Step[S]) error {
	for _, st := range steps {
		if err := st.Do(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", st.Name, err)
		}
	}
	return nil
}

// conflictRetry is how long a reconcile waits for its cache after it wrote from an outdated object.
const conflictRetry = 100 * time.Millisecond

// Outcome turns the end of a reconcile into its result. A conflict is not an error: the cache was behind, and the
// object is looked at again. Any other error is returned for the queue's own backoff; after 0 nothing is asked for.
func Outcome(after time.Duration, err error) (ctrl.Result, error) {
	switch {
	case err == nil:
		return ctrl.Result{RequeueAfter: after}, nil
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	default:
		return ctrl.Result{}, err
	}
}
