package conformance

import (
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/ringfleet/ringfleet/worker/engine/enginetest"
)

var (
	reportsMu sync.Mutex // guards reports
	reports   []enginetest.Report
)

// keep notes a column of the table.
func keep(r enginetest.Report) {
	reportsMu.Lock()
	defer reportsMu.Unlock()
	reports = append(reports, r)
}

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		code = publish(reports)
	}
	if err := goleak.Find(); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}
