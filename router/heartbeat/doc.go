// Package heartbeat decides which workers are alive: it holds one Watch stream to each candidate, judges what it hears
// and what it doesn't by a pure state machine (Detector), and publishes an immutable Snapshot whenever the verdict on
// a worker changes. It also decides which of the living are passed over because requests fail there (Ejector), and says
// which differ from their past or their peers. It never looks candidates up (package discovery does), never picks a worker
// for a request (package placement does) and never carries one (package upstream does).
package heartbeat
