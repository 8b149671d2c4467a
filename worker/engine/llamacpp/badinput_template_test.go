package llamacpp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// ends fails where f does not end: a template that has no end would keep its goroutine for ever.
func ends(t *testing.T, f func()) {
	t.Helper()
	over := make(chan struct{})
	go func() { defer close(over); f() }()
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Fatal("hangs")
	}
}

func TestATemplateWithoutAnEndIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ source, says string }{
		"loops in loops":                  {strings.Repeat("{% for i in range(60000) %}", 3) + strings.Repeat("{% endfor %}", 3), "rounds"},
		"a loop over its own strings":     {"{% for m in messages %}{% for a in range(60000) %}{% for b in range(60000) %}{% endfor %}{% endfor %}{% endfor %}", "rounds"},
		"loops that begin in two lines":   {strings.Repeat("{% for\ti in\nrange(60000) %}", 3) + strings.Repeat("{% endfor %}", 3), "rounds"},
		"a macro that calls itself":       {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deep"},
		"macros that call each other":     {"{% macro f(g) %}{{ g(g) }}{% endmacro %}{{ f(f) }}", "deep"},
		"a range of two thousand million": {"{% for i in range(2000000000) %}{% endfor %}", "range"},
		"four million brackets":           {"{{ " + strings.Repeat("(", 1<<22) + " }}", "4194310 bytes"},
		"half a million brackets":         {"{{ " + strings.Repeat("(", 1<<19) + " }}", "brackets nest"},
		"a hundred thousand blocks":       {strings.Repeat("{% if x %}", 1e5), "blocks nest"},
		"a hundred thousand signs":        {"{{ " + strings.Repeat("- ", 1e5) + "1 }}", "brackets nest"},
		"a hundred thousand nots":         {"{{ " + strings.Repeat("not ", 1e5) + "1 }}", "brackets nest"},
	} {
		t.Run(name, func(t *testing.T) {
			ends(t, func() {
				_, err := newTemplate(c.source, "m", "", "").render(engine.Chat{Messages: []byte(paris)})
				var bad *engine.InvalidError
				if !errors.As(err, &bad) || !strings.Contains(bad.Message, c.says) {
					t.Errorf("got %v, want %q", err, c.says)
				}
			})
		})
	}
}

func TestAGuardedTemplateSaysWhatItSays(t *testing.T) {
	for source, want := range map[string]string{
		"{% for m in messages -%}\n  {{ m.role }},\n{%- endfor %}":                               "system,user,",
		"{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}": "321",
		"{% raw %}{% for %}{% endraw %}{% for i in range(1, 6, 2) %}{{ i }}{% endfor %}":         "{% for %}135",
		strings.Repeat("- not (", 600):                                                           strings.Repeat("- not (", 600),
		"{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}":                                      "321",
	} {
		if got, err := newTemplate(source, "m", "", "").render(engine.Chat{Messages: []byte(paris)}); got != want || err != nil {
			t.Errorf("%s: got %q (%v), want %q", source, got, err, want)
		}
	}
}
