// Package engine is a server that speaks OpenAI's protocol as vLLM does, computes nothing and misbehaves as it is told: its
// answers are numbered words, so that one that is missing or doubled is seen. It writes down every request that reached it.
// What it is told, and when, is the caller's decision.
package engine

import (
	"time"

	"github.com/ringfleet/ringfleet/test/bench/faults/history"
)

// Plan is how an engine answers from now on. The zero Plan answers all at once.
type Plan struct {
	// Loading: its health is well, and it refuses every completion as one that still loads.
	Loading bool `json:"loading,omitempty"`
	// Status refuses every chat with that status; 0 answers.
	Status int `json:"status,omitempty"`
	// First is the time until the first word, Between that from one word to the next, Slow what both are multiplied with;
	// 0 is 1.
	First   time.Duration `json:"first,omitempty"`
	Between time.Duration `json:"between,omitempty"`
	Slow    int           `json:"slow,omitempty"`
	// Frozen sends no word, and keeps every connection open.
	Frozen bool `json:"frozen,omitempty"`
	// Blind: its metrics tell nothing of its KV cache.
	Blind bool `json:"blind,omitempty"`
	// DieAfter ends the process when it has sent so many words of one answer; 0 never does.
	DieAfter int `json:"dieAfter,omitempty"`
	// Poison kills the processes of Victims, and this one, when it is in a prompt.
	Poison  string `json:"poison,omitempty"`
	Victims []int  `json:"victims,omitempty"`
	// Tag is what words begin with; empty: w.
	Tag string `json:"tag,omitempty"`
	// Raw is sent in place of the events of a chat, piece by piece, with the time of Gap between them.
	Raw [][]byte      `json:"raw,omitempty"`
	Gap time.Duration `json:"gap,omitempty"`
	// RawSize sends a line without an end, of so many bytes, after the first word.
	RawSize int `json:"rawSize,omitempty"`
}

func (p Plan) tag() string {
	if p.Tag == "" {
		return "w"
	}
	return p.Tag
}

// slowed is d as this engine takes it.
func (p Plan) slowed(d time.Duration) time.Duration { return d * time.Duration(max(p.Slow, 1)) }

// Spec is what an engine is started with.
type Spec struct {
	// Port of the loopback interface; Control is the path of the socket that it is told plans by; Records that of the file
	// that it appends to.
	Port    int    `json:"port"`
	Control string `json:"control"`
	Records string `json:"records"`
	Pod     string `json:"pod"`
	// KeepAlive is after how long it closes a connection without a request; 0 never does.
	KeepAlive time.Duration `json:"keepAlive"`
	Plan      Plan          `json:"plan"`
}

// State is what an engine is at.
type State struct {
	Started int      `json:"started"` // chats since the process began
	Running []string `json:"running"` // ids
	Opened  int      `json:"opened"`  // connections since the process began
}

// record is a line of the file: an attempt that has begun, or ended.
type record struct {
	Number  int             `json:"number"`
	Process string          `json:"process"` // tells processes apart
	Attempt history.Attempt `json:"attempt"`
}

// Model is the name under which it serves.
const Model = "scripted"
