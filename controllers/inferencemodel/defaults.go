package inferencemodel

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/names"
	"github.com/ringfleet/ringfleet/controllers/step"
)

// createDefaults creates the WorkerPool `default` when the model refers to it and it is absent, and the InferenceRouter
// `default` when the namespace has no router. What exists is left as it is, and no model owns them: their own
// controllers remove them with the namespace's last model.
func (r *Reconciler) createDefaults(ctx context.Context, s *scope) error {
	if s.pool == nil && names.Pool(s.model) == v1alpha1.DefaultName {
		pool := &v1alpha1.WorkerPool{ObjectMeta: defaultMeta(s.model)}
		made, err := r.createDefault(ctx, s, pool)
		if err != nil {
			return err
		}
		if made {
			s.pool = pool
		}
	}
	if s.router == nil {
		router := &v1alpha1.InferenceRouter{ObjectMeta: defaultMeta(s.model)}
		made, err := r.createDefault(ctx, s, router)
		if err != nil {
			return err
		}
		if made {
			s.router = router
		}
	}
	return nil
}

// createDefault creates o, and reports false when it exists already.
func (r *Reconciler) createDefault(ctx context.Context, s *scope, o client.Object) (bool, error) {
	if err := r.confirm(ctx, s); err != nil {
		return false, err
	}
	switch err := r.Client.Create(ctx, o, client.FieldOwner(step.Owner)); {
	case err == nil:
		return true, nil
	case apierrors.IsAlreadyExists(err):
		return false, nil
	default:
		return false, fmt.Errorf("create %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
}

func defaultMeta(m *v1alpha1.InferenceModel) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:      v1alpha1.DefaultName,
		Namespace: m.Namespace,
		Labels: map[string]string{
			v1alpha1.LabelCreatedFor:    "true",
			"app.kubernetes.io/part-of": "ringfleet",
			v1alpha1.LabelManagedBy:     v1alpha1.ManagedBy,
		},
	}
}
