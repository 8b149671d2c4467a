package server

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
)

func TestEveryLineIsWrittenHoweverTheRouterEnds(t *testing.T) {
	broken := errors.New("a listener broke")
	for name, end := range map[string]func() error{
		"after a drain": func() error { return nil },
		"by an error":   func() error { return broken },
		"by a panic":    func() error { panic(broken) },
	} {
		t.Run(name, func(t *testing.T) {
			var file bytes.Buffer
			defer func() {
				_ = recover()
				if n := bytes.Count(file.Bytes(), []byte("\n")); n != 2 {
					t.Errorf("%d lines of 2 are written: %s", n, file.Bytes())
				}
			}()
			_ = logging(&file, func(log *slog.Logger) error {
				log.Info("the router serves")
				log.Info("the router is drained")
				return end()
			})
		})
	}
}
