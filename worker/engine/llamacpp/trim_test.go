package llamacpp

import (
	"strings"
	"testing"

	"github.com/ardanlabs/jinja"
)

// The wanted texts are what Jinja2 3.1 renders with trim_blocks and lstrip_blocks.
func TestWhitespaceIsTrimmedAsJinjaDoes(t *testing.T) {
	for source, want := range map[string]string{
		"{% if true %}{{ 'a' }}\n{% endif %}z":                                      "a\nz",
		"{{ 'a' }}\n{% if true %}b{% endif %}":                                      "a\nb",
		"{% if true %}\nx\n{% endif %}\nz":                                          "x\nz",
		"{% if true %}x\n  {% endif %}z":                                            "x\nz",
		"x {% if true %}y{% endif %}":                                               "x y",
		"  {% if true %}y{% endif %}":                                               "y",
		"  {{ 'a' }}  {{ 'b' }}":                                                    "  a  b",
		"a \n {%- if true -%} \n b \n {%- endif -%} \n c":                           "abc",
		"{%- if true -%}{{ 'a' }}\n\n b{% endif %}":                                 "a\n\n b",
		"a  {%+ if true %}b{% endif +%}\nc":                                         "a  b\nc",
		"a\n{# a comment with ' a quote #}\nb":                                      "a\nb",
		"{{- 'a' -}}  \n {{ \"}} %}\" }}":                                           "a}} %}",
		"it's \\n {{ 'a\\n\\'b' }}\\":                                               "it's \\n a\n'b\\",
		"a\r\n{% if true %}\r\nb{% endif %}\n":                                      "a\nb",
		"{% for i in [1, 2] %}{{ i }}\n{% endfor %}":                                "1\n2\n",
		"{% set x %}\n  q {{ 1 }}\n{% endset %}[{{ x }}]":                           "[  q 1\n]",
		"{% if true %}\n  {% if true %}\n    {{ 'a' }}\n  {% endif %}\n{% endif %}": "    a\n",
		"{ {{ 'a' }} }":                                                             "{ a }",
		"":                                                                          "",
	} {
		c, err := jinja.Compile(trimmed(source))
		if err != nil {
			t.Errorf("%q as %q: %v", source, trimmed(source), err)
			continue
		}
		if got, err := c.RenderValues(nil); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", source, got, err, want)
		}
	}
}

func TestATemplateThatCantBeTakenApartIsLeft(t *testing.T) {
	for _, source := range []string{"a {{ 'x' ", "{% raw %}\n{{ x }}{% endraw %}", "{# never ends", "{{ 'no end }}"} {
		if got := trimmed(source); got != source {
			t.Errorf("%q became %q", source, got)
		}
	}
}

func FuzzTrimmed(f *testing.F) {
	f.Add("{% if true %}{{ 'a' }}\n{% endif %}z")
	f.Add("a\n {#- c -#}{{-\"x\"+}}\\'")
	f.Fuzz(func(t *testing.T, source string) {
		if out := trimmed(source); len(out) > 16*len(source)+16 || strings.Contains(out, "\r") {
			t.Errorf("%q became %q", source, out)
		}
	})
}
