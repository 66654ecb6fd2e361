package wire

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns text as it is shown to people, in tables, messages and logs. Letters, marks, digits,
// punctuation, symbols and the ASCII space are kept, in all scripts. Everything else is escaped as in a
// Go string literal: control characters, line separators, bytes that are not UTF-8, and all characters
// that are invisible or change how their neighbours are displayed (bidirectional controls, zero-width
// characters, variation selectors, fillers, other spaces). So a text can neither control a terminal nor
// start a line, and different texts look different. The zero-width joiner of an emoji sequence is escaped
// as well; the joined emoji stay readable. A backslash is doubled, which makes the result unambiguous.
func Printable(text string) string { return escape(text, true) }

// PrintableLine is Printable for a line that already contains escapes, such as a log line with quoted
// values. It keeps backslashes as they are.
func PrintableLine(line string) string { return escape(line, false) }

func escape(text string, backslash bool) string {
	clean := 0 // length of the prefix that needs no escaping
	for clean < len(text) {
		r, size := utf8.DecodeRuneInString(text[clean:])
		if !visible(r, size) || backslash && r == '\\' {
			break
		}
		clean += size
	}
	if clean == len(text) {
		return text
	}
	var b strings.Builder
	b.WriteString(text[:clean])
	for i := clean; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case backslash && r == '\\':
			b.WriteString(`\\`)
		case visible(r, size):
			b.WriteString(text[i : i+size])
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(text[i])|0x100, 16)[1:])
		case r < 0x10000 && strconv.IsPrint(r):
			b.WriteString(`\u` + strconv.FormatUint(uint64(r)|0x10000, 16)[1:])
		case strconv.IsPrint(r):
			b.WriteString(`\U` + strconv.FormatUint(uint64(r)|1<<32, 16)[1:])
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return b.String()
}

// visible reports whether a character is kept. Some characters that Unicode classifies as letters or
// marks are displayed as nothing.
func visible(r rune, size int) bool {
	if r < utf8.RuneSelf {
		return ' ' <= r && r <= '~'
	}
	if r == utf8.RuneError && size == 1 || !strconv.IsPrint(r) {
		return false
	}
	return r != blankBraille && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// blankBraille is the Braille pattern without dots.
const blankBraille = '\u2800'

// CleanText returns text in a form that [ValidText] accepts: control characters and bytes that are not
// UTF-8 become '?', and a text longer than limit bytes is cut at a character boundary. Use it for texts
// that the user did not choose, such as a host name, since refusing them would not help.
func CleanText(text string, limit int) string {
	if len(text) <= limit && ValidText("", text) == nil {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) || r == utf8.RuneError {
			r = '?'
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
