package upstream

// How many calls that failed at their worker may be tried once more at the same time: a part of those that run, and a few
// always. Without a bound, workers that all fail get twice the work. The numbers are Envoy's defaults.
const (
	retryPercent = 20
	retryLeast   = 3
)

// budget counts calls and the retries among them. It is pure; whoever has it guards it.
type budget struct {
	active  int // calls that run
	retries int // that were paid for and run, or are about to
}

// spend pays for a retry of a call that runs no more, and reports whether there was enough.
func (b *budget) spend() bool {
	if b.retries >= max(retryLeast, (b.active+1)*retryPercent/100) {
		return false
	}
	b.retries++
	return true
}

// refund says that a retry that was paid for has ended.
func (b *budget) refund() { b.retries-- }
