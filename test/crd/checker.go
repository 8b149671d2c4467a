// Package crd judges objects by the CRDs of the API as a server would: defaults, pruning, OpenAPI rules, list keys and
// CEL rules, in that order. It needs no server. It never looks at what is stored, so it can't judge updates by rule
// ratcheting.
package crd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/ringfleet/ringfleet/api/crd"
)

// Checker judges objects of every kind that the API defines.
type Checker struct {
	kinds map[string]kind
}

type kind struct {
	structural *schema.Structural
	openapi    validation.SchemaValidator
	cel        *cel.Validator
}

// New reads the embedded CRDs and judges them themselves first, as the server would on installing them: among other
// things it refuses CEL rules that may cost too much.
func New() (*Checker, error) {
	names, err := fs.Glob(crd.FS, "*.yaml")
	if err != nil {
		return nil, err
	}
	c := &Checker{kinds: map[string]kind{}}
	for _, name := range names {
		text, err := fs.ReadFile(crd.FS, name)
		if err != nil {
			return nil, err
		}
		if err := c.add(text); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return c, nil
}

func (c *Checker) add(text []byte) error {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &v1); err != nil {
		return err
	}
	scheme.Default(&v1)
	v1.Status.StoredVersions = []string{v1.Spec.Versions[0].Name}
	var def apiextensions.CustomResourceDefinition
	if err := scheme.Convert(&v1, &def, nil); err != nil {
		return err
	}
	if errs := crdvalidation.ValidateCustomResourceDefinition(context.Background(), &def); len(errs) > 0 {
		return errs.ToAggregate()
	}
	var props apiextensions.JSONSchemaProps
	if err := scheme.Convert(v1.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		return err
	}
	structural, err := schema.NewStructural(&props)
	if err != nil {
		return err
	}
	openapi, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		return err
	}
	c.kinds[def.Spec.Names.Kind] = kind{structural, openapi, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
	return nil
}

// Apply returns what the server would store for object, or why it would refuse it. object is not changed.
func (c *Checker) Apply(object any) (map[string]any, error) {
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	return c.ApplyMap(u)
}

// ApplyMap is Apply for an object without a Go type, such as a manifest with mistakes in it. It changes object.
func (c *Checker) ApplyMap(object map[string]any) (map[string]any, error) {
	name, _ := object["kind"].(string)
	k, ok := c.kinds[name]
	if !ok {
		return nil, fmt.Errorf("no CRD for kind %q", name)
	}
	var errs field.ErrorList
	for _, unknown := range pruning.PruneWithOptions(object, k.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		errs = append(errs, field.Invalid(field.NewPath(unknown), nil, "unknown field"))
	}
	defaulting.Default(object, k.structural)
	errs = append(errs, validation.ValidateCustomResource(nil, object, k.openapi)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, k.structural, object)...)
	if len(errs) == 0 { // like the server: CEL sees only objects that pass the rest
		celErrs, _ := k.cel.Validate(context.Background(), nil, k.structural, object, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, celErrs...)
	}
	if len(errs) > 0 {
		return nil, errors.New(errs.ToAggregate().Error())
	}
	return object, nil
}
