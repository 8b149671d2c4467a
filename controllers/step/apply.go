package step

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Owner is the one field owner of everything that the manager applies or patches.
const Owner = "ringfleet-manager"

// applyConfiguration is what every generated apply configuration of a top-level kind offers.
type applyConfiguration interface {
	runtime.ApplyConfiguration
	GetName() *string
	GetNamespace() *string
}

// Apply makes want true by server-side apply and reports whether it wrote. It reads the live object into live first and
// writes nothing when the fields that Owner has there, taken out by extract (such as ExtractService of the client-go
// package applyconfigurations/core/v1), are those of want. After a write live is not refreshed.
func Apply[T client.Object, A applyConfiguration](
	ctx context.Context, c client.Client, live T, want A, extract func(live T, owner string) (A, error),
) (bool, error) {
	key := client.ObjectKey{Name: deref(want.GetName()), Namespace: deref(want.GetNamespace())}
	err := c.Get(ctx, key, live)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return false, fmt.Errorf("get %T %s: %w", live, key, err)
	default:
		have, err := extract(live, Owner)
		if err != nil {
			return false, fmt.Errorf("read the fields of %T %s that %s owns: %w", live, key, Owner, err)
		}
		if equality.Semantic.DeepEqual(have, want) {
			return false, nil
		}
	}
	if err := c.Apply(ctx, want, client.ForceOwnership, client.FieldOwner(Owner)); err != nil {
		return false, fmt.Errorf("apply %T %s: %w", live, key, err)
	}
	return true, nil
}

// WriteStatus patches the status of after, which is a changed copy of before, and reports whether it wrote. It writes
// nothing when nothing differs, and meets a conflict when before is no longer the newest version.
func WriteStatus(ctx context.Context, c client.Client, before, after client.Object) (bool, error) {
	diff, err := client.MergeFrom(before).Data(after)
	if err != nil {
		return false, fmt.Errorf("compare the status of %s: %w", client.ObjectKeyFromObject(after), err)
	}
	if string(diff) == "{}" {
		return false, nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Status().Patch(ctx, after, patch, client.FieldOwner(Owner)); err != nil {
		return false, fmt.Errorf("write the status of %s: %w", client.ObjectKeyFromObject(after), err)
	}
	return true, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
