//go:build !cgo

package gpu

// List returns no devices: NVML can be called only by a program that is built with cgo.
func List() ([]Device, error) { return nil, nil }
