package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestGather runs the transcripts of testdata/gather. Rewrite them with -rewrite.
//
//	window MILLISECONDS
//	arrive MILLISECONDS [busy]              a request is queued; busy: something was inside
//	look MILLISECONDS [ready] [coming]      how long the first step still waits
func TestGather(t *testing.T) {
	datadriven.Walk(t, "testdata/gather", func(t *testing.T, path string) {
		var g gather
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			at, err := time.ParseDuration(d.CmdArgs[0].Key + "ms")
			if err != nil {
				t.Fatalf("%s: %v", d.Pos, err)
			}
			now := time.Unix(0, 0).Add(at)
			switch d.Cmd {
			case "window":
				g = gather{window: at}
			case "arrive":
				g.arrive(now, !d.HasArg("busy"))
			case "look":
				if left := g.left(now, d.HasArg("ready"), d.HasArg("coming")); left > 0 {
					return fmt.Sprintf("wait %s\n", left)
				}
				return "start\n"
			}
			return ""
		})
	})
}
