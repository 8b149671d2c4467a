package placement

// What routers send that share nothing but the ring. A router sees the work of others in reports only, and until then all
// of them see the same idle workers. Three things keep them apart. Equal predictions are decided by the ring's walk. What
// turns up in reports on a worker where this router has sent something itself tells how much others send to the same
// places (beside). And what turns up anywhere in a round of reports in which this router has sent requests tells how much
// others have sent at any such moment (turned): it is expected on each worker as often as it has turned up there. So
// a router avoids the workers that others prefer, prefers others, and is avoided there in turn.

const (
	// A worker's average forgets after so many reports, the model's after so many requests, and beside after so many tokens.
	turnedMemory, roundMemory, besideMemory = 300, 200, 1e6
	// mostBeside bounds what one report says of beside.
	mostBeside = 4
	// turnedWeight is how much more than the mean is expected: what others send comes in bursts, and costs most in these.
	turnedWeight = 2
)

// others is what is known of what others send.
type others struct {
	share  average // of the requests that workers report, this router's own
	beside average // tokens of others that turn up, for each that this router has sent to the same worker since its last report
	turned average // tokens of others that turn up in a round of reports, as the requests of this router meet it
	round  float64 // of this round, so far
	sent   float64 // requests of this router in this round
}

// observe takes in an instance's report: of all requests in it so many are this router's; whole says that they are known.
func (o *others) observe(l *live, mine, all int, whole bool) {
	if whole && all > 0 {
		o.share.add(float64(mine)/float64(all), float64(all), shareMemory)
	}
	o.round += l.latest
	if l.fresh > 0 {
		o.beside.add(min(mostBeside, l.latest/l.fresh), l.fresh, besideMemory)
	}
}

// close ends a round.
func (o *others) close() {
	o.turned.add(o.round, o.sent, roundMemory)
	o.round, o.sent = 0, 0
}

// exist reports whether other routers have a part of the requests that is worth speaking of.
func (o *others) exist() bool { return o.share.or(1, shareBase) < alone }

// expected is the factors by which others' work is expected on a worker: for each token of its freshWork, and for each of
// its turned average.
func (o *others) expected(members []*member) (beside, turned float64) {
	all := 0.
	for _, m := range members {
		all += m.live.turned.value
	}
	if all > 0 {
		turned = turnedWeight * o.turned.value / all
	}
	return o.beside.value, turned
}
