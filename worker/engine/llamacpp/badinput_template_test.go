package llamacpp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ardanlabs/jinja"

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
		"loops in loops":                          {strings.Repeat("{% for i in range(60000) %}", 3) + strings.Repeat("{% endfor %}", 3), "rounds"},
		"a loop over its own strings":             {"{% for m in messages %}{% for a in range(60000) %}{% for b in range(60000) %}{% endfor %}{% endfor %}{% endfor %}", "rounds"},
		"loops that begin in two lines":           {strings.Repeat("{% for\ti in\nrange(60000) %}", 3) + strings.Repeat("{% endfor %}", 3), "rounds"},
		"a macro that calls itself":               {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deep"},
		"macros that call each other":             {"{% macro f(g) %}{{ g(g) }}{% endmacro %}{{ f(f) }}", "deep"},
		"a range of two thousand million":         {"{% for i in range(2000000000) %}{% endfor %}", "range"},
		"four million brackets":                   {"{{ " + strings.Repeat("(", 1<<22) + " }}", "4194310 bytes"},
		"five thousand brackets":                  {"{{ " + strings.Repeat("(", 5000) + " }}", "brackets nest"},
		"a hundred thousand blocks":               {strings.Repeat("{% if x %}", 1e5), "blocks nest"},
		"a hundred thousand signs":                {"{{ " + strings.Repeat("- ", 1e5) + "1 }}", "outside of its strings"},
		"a hundred thousand nots":                 {"{{ " + strings.Repeat("not ", 1e5) + "1 }}", "outside of its strings"},
		"half a million sums":                     {"{{ 1" + strings.Repeat("+1", 1<<18) + " }}", "outside of its strings"},
		"a hundred thousand blocks of generation": {strings.Repeat("{% generation %}", 6e4), "blocks nest"},
		"a hundred thousand texts of blocks":      {strings.Repeat("{% set x %}", 9e4), "blocks nest"},
		"a loop whose name has no space behind it": {
			strings.Repeat("{% for(i) in range(60000) %}", 3) + strings.Repeat("{% endfor() %}", 3), "rounds"},
		"a macro whose parameter calls it":               {"{% macro f(x=f()) %}{% endmacro %}{{ f() }}", "parameters"},
		"a macro whose parameter calls it as a filter":   {"{% macro f(x=1|f) %}{% endmacro %}{{ f() }}", "parameters"},
		"a macro whose parameter calls it within a text": {"{% macro f(a='x,b=f(),c=') %}{% endmacro %}{{ f() }}", "parameters"},
		"a macro whose first bracket is in a text":       {`{% macro f'(x=f()') %}{% endmacro %}{{ f() }}`, "parameters"},
		"a block that calls itself by a name it was kept under": {
			"{% set ns = namespace() %}{% macro m() %}{% set ns.c = caller %}{% endmacro %}{% call m() %}{{ ns.c() }}{% endcall %}{{ ns.c() }}", "deep"},
		"a bound that is dropped on the way": {
			"{% macro f() %}{{ 'x'[f():] }}{% endmacro %}{{ 'x'[f():] }}", "deep"},
		"conditions that leave no round": {
			"{% for a in range(60000) %}{% for b in range(60000) if false %}{% endfor %}{% endfor %}", "rounds"},
		"conditions of a loop that is recursive": {
			"{%- for a in range(60000) -%}{%- for b in range(60000) if false recursive -%}{% endfor %}{% endfor %}", "rounds"},
		"conditions that close a bracket of another": {
			"{% for a in range(9) if 0][1] if 1 else [0 %}{% endfor %}", "don't match"},
		"a bound that the template calls":    {"{% macro f() %}{{ ringfleet_leave() }}{{ f() }}{% endmacro %}{{ f() }}", "ringfleet_"},
		"a bound that the template sets":     {"{% set ringfleet_enter = namespace %}", "ringfleet_"},
		"a loop over the name of a bound":    {"{% for ringfleet_round in [namespace] %}{% endfor %}", "ringfleet_"},
		"a parameter of the name of a bound": {"{% macro f(ringfleet_enter) %}{{ f(namespace) }}{% endmacro %}{{ f(namespace) }}", "ringfleet_"},
		"a loop that is behind raw text": {
			"{% raw %}{% for %}{% endraw() %}" + strings.Repeat("{% for i in range(60000) %}", 3) + strings.Repeat("{% endfor %}", 3), "rounds"},
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

// What is deepest by each bound at once still fits the stack.
func TestATemplateAtItsBoundsIsRendered(t *testing.T) {
	const deep = maxDepth - 1
	signs := "{{ " + strings.Repeat("-", maxCode-100) + "f(n - 1) }}"
	source := "{% macro f(n) %}" + strings.Repeat("{% if n %}", maxNest-2) + signs + strings.Repeat("{% endif %}", maxNest-2) + "{% endmacro %}" +
		fmt.Sprintf("{{ f(%d) }}x", deep)
	if got, err := newTemplate(source, "m", "", "").render(engine.Chat{Messages: []byte(paris)}); got != "0x" || err != nil {
		t.Errorf("got %q (%v)", got, err)
	}
}

func TestATemplateOutOfBoundsIsTriedOnce(t *testing.T) {
	for name, source := range map[string]string{
		"rounds": strings.Repeat("{% for i in range(60000) %}", 2) + strings.Repeat("{% endfor %}", 2),
		"deep":   "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"range":  "{% for i in range(2000000000) %}{% endfor %}",
	} {
		made := newTemplate(source, "m", "", "")
		if !strings.Contains(made.broken, name) {
			t.Errorf("%s: after all trials the template is broken by %q", name, made.broken)
		}
		made.compiled = nil // a rendering would panic
		if _, err := made.trial(jinja.None(), jinja.None()); err == nil || err.Error() != made.broken {
			t.Errorf("%s: the next trial says %v", name, err)
		}
	}
}

func TestAGuardedTemplateSaysWhatItSays(t *testing.T) {
	var sixty string
	for i := range 60 {
		sixty += fmt.Sprintf("%d-;", i)
	}
	for source, want := range map[string]string{
		"{% for m in messages -%}\n  {{ m.role }},\n{%- endfor %}":                                                                           "system,user,",
		"{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}":                                             "321",
		"{% raw %}{% for %}{% endraw %}{% for i in range(1, 6, 2) %}{{ i }}{% endfor %}":                                                     "{% for %}135",
		strings.Repeat("- not (", 600):                                                                                                       strings.Repeat("- not (", 600),
		"{% macro f(n, s='-') %}{{ n }}{{ s }}{{ caller() }}{% endmacro %}{% for i in range(60) %}{% call f(i) %};{% endcall %}{% endfor %}": sixty,
		"{% for i in range(9) if i % 2 == 1 or i == 'if in' or i in [4] %}{{ i }}{% endfor %}":                                               "13457",
		"{%- for i in [x if x else 1, 2] if i in (1 if i else 1, 3)-%}{{ i }}{% else %}e{% endfor %}":                                        "1",
		"{% for i in [1, 2] if i > 1 recursive %}{{ i }}{% endfor %}":                                                                        "2",
		"{% for i in [1, 2] if 'a' if i > 1 else '' %}{{ i }}{% endfor %}":                                                                   "2",
		"{% raw %}{% endraw %}{%- for i in [1, 2] if i > 1 -%} {{ i }} {%- endfor -%}":                                                       "2",
		"{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}":                                                                                  "321",
	} {
		if got, err := newTemplate(source, "m", "", "").render(engine.Chat{Messages: []byte(paris)}); got != want || err != nil {
			t.Errorf("%s: got %q (%v), want %q", source, got, err, want)
		}
	}
}
