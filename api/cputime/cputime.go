// Package cputime reads how much of the processors' time this process has used. It belongs to no contract, and stands here
// because routers and workers share no other packages.
package cputime

import (
	"syscall"
	"time"
)

// Used is the time that all threads of this process have run since it began, in the kernel too. On a machine that does other
// things besides, it says what work costs where the time that passes does not.
func Used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // of this process it is never refused
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
