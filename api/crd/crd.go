// Package crd holds the CustomResourceDefinitions of the API as the manager's chart installs them, for tools that want
// them without a file system. It decides nothing.
package crd

import "embed"

// FS holds one YAML file for each kind.
//
//go:embed *.yaml
var FS embed.FS
