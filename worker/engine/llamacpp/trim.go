package llamacpp

import (
	"iter"
	"strings"
)

// tag is a piece of a template that is no text.
type tag struct {
	kind          byte // { expression, % statement, # comment
	content       string
	left, right   byte // the sign next to the opening and closing braces: -, + or 0
	start, behind int
}

// trimmed returns source with its whitespace control done, as Jinja does it with trim_blocks and lstrip_blocks, which is
// what chat templates are written for. The template engine's own way reaches over expressions to the next text, and so
// takes line ends that belong to the prompt. All text becomes expressions, which leaves it nothing to trim. A template that
// can't be taken apart here, or that has raw blocks, is returned as it is.
func trimmed(source string) string {
	source = strings.TrimSuffix(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source), "\n")
	var out strings.Builder
	previous, lineStart := tag{}, true
	for {
		next, found, ok := nextTag(source, previous.behind)
		if !ok || next.kind == '%' && strings.HasPrefix(strings.TrimSpace(next.content), "raw") {
			return source
		}
		end := len(source)
		if found {
			end = next.start
		}
		text := source[previous.behind:end]
		text, lineStart = trimAfter(previous, text, lineStart)
		if found {
			text = trimBefore(next, text, lineStart)
		}
		if text != "" {
			out.WriteString("{{ '" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "' }}")
		}
		if !found {
			return out.String()
		}
		switch next.kind {
		case '{':
			out.WriteString("{{" + next.content + "}}")
		case '%':
			out.WriteString("{%" + next.content + "%}")
		}
		previous, lineStart = next, false
	}
}

// trimAfter trims the beginning of the text behind t, and says whether the rest begins a line.
func trimAfter(t tag, text string, lineStart bool) (string, bool) {
	switch {
	case t.right == '-':
		rest := strings.TrimLeft(text, " \t\n\r\f\v")
		cut := text[:len(text)-len(rest)]
		return rest, strings.HasSuffix(cut, "\n")
	case (t.kind == '%' || t.kind == '#') && t.right != '+' && strings.HasPrefix(text, "\n"):
		return text[1:], true
	}
	return text, lineStart
}

// trimBefore trims the end of the text before t.
func trimBefore(t tag, text string, lineStart bool) string {
	switch {
	case t.left == '-':
		return strings.TrimRight(text, " \t\n\r\f\v")
	case t.kind == '{' || t.left == '+':
		return text
	}
	line := strings.LastIndexByte(text, '\n') + 1
	if (line > 0 || lineStart) && strings.Trim(text[line:], " \t") == "" {
		return text[:line]
	}
	return text
}

// nextTag returns the first tag of source at or behind from. ok is false for one that isn't closed.
func nextTag(source string, from int) (t tag, found, ok bool) {
	for i := from; i+1 < len(source); i++ {
		if source[i] != '{' || strings.IndexByte("{%#", source[i+1]) < 0 {
			continue
		}
		t = tag{kind: source[i+1], start: i}
		closing := map[byte]string{'{': "}}", '%': "%}", '#': "#}"}[t.kind]
		begin := i + 2
		if begin < len(source) && (source[begin] == '-' || source[begin] == '+') {
			t.left = source[begin]
			begin++
		}
		end := closed(source, begin, closing, t.kind != '#')
		if end < 0 {
			return t, false, false
		}
		t.behind = end + len(closing)
		if end > begin && (source[end-1] == '-' || source[end-1] == '+') {
			end--
			t.right = source[end]
		}
		t.content = source[begin:end]
		return t, true, true
	}
	return t, false, true
}

// closed returns where closing stands behind from, outside of strings where there are any; -1: nowhere.
func closed(source string, from int, closing string, strs bool) int {
	if !strs {
		if at := strings.Index(source[from:], closing); at >= 0 {
			return from + at
		}
		return -1
	}
	for i := range unquoted(source, from) {
		if strings.HasPrefix(source[i:], closing) {
			return i
		}
	}
	return -1
}

// unquoted goes over the bytes of code, and their places, from a place on that is in no string, and leaves out strings.
func unquoted(code string, from int) iter.Seq2[int, byte] {
	return func(yield func(int, byte) bool) {
		var quote byte
		for i := from; i < len(code); i++ {
			switch c := code[i]; {
			case quote != 0 && c == '\\':
				i++
			case quote != 0 && c == quote:
				quote = 0
			case quote != 0:
			case c == '\'' || c == '"':
				quote = c
			case !yield(i, c):
				return
			}
		}
	}
}
