// Package queue decides who waits for a model and who goes next: by priority, fair between the tenants of one priority by
// their tokens, first in first out within a tenant, and what can no longer be in time behind what can. Queue is the pure
// core; Gate is its edge, which callers wait in. It never picks a worker and never places a request: an item's own Try
// does, one at a time per model and in the queue's order. How full a model may be is for package admission to say.
//
// A gate has no goroutine of its own. Those who wait take turns: whoever is first tries when it is called, and calls the
// next when it has gone.
package queue
