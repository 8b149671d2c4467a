//go:build !cgo

package gpu

// open returns no driver: NVML can be called only by a program that is built with cgo.
func open() (driver, error) { return nil, nil }
