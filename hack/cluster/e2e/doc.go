// Package e2e runs the cluster tool for real, as root, beside whatever else runs on the machine: it asserts
// that members, pods and Services work, that an interrupted command is survived, and that a cluster leaves
// the machine as it was. Its tests need the build tag e2e and the cache of programs; echo is their only pod.
package e2e
