package openai

import "unicode/utf8"

const hexDigits = "0123456789abcdef"

// appendNullable appends a string, or null for an empty one.
func appendNullable(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return appendString(dst, s)
}

// appendString appends s as a JSON string. Beside what JSON asks for it escapes U+0085, U+2028 and U+2029, which many
// clients take for the end of a line, and DEL; invalid UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < 0x7f && c != '"' && c != '\\' {
			i++
			continue
		}
		r, size := rune(c), 1
		if c >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(s[i:])
			if r != 0x85 && r != 0x2028 && r != 0x2029 && (r != utf8.RuneError || size > 1) {
				i += size
				continue
			}
		}
		dst = append(dst, s[from:i]...)
		dst = appendEscape(dst, r)
		i += size
		from = i
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// appendEscape appends the escape of a rune of the basic plane.
func appendEscape(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
