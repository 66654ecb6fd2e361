package wire

import (
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestCleanText(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "",
		"host.example":        "host.example",
		"a\nb\x1b\u0085":      "a?b??",
		"h\xffst":             "h?st",
		"123456789éé":         "123456789é",
		"ééééééé":             "éééééé",
		"a\u202eb":            "a\u202eb",
		"\xff\xff123456789😀😀": "??123456789",
	} {
		if got := CleanText(text, 12); got != want {
			t.Errorf("%q becomes %q, wanted %q", text, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"":                "",
		"orders/42 of us": "orders/42 of us",
		"ünïcödé/名前/Ελλάδα/עברית": "ünïcödé/名前/Ελλάδα/עברית",
		"हिन्दी e\u0301 🔒🇩🇪👍🏽":    "हिन्दी e\u0301 🔒🇩🇪👍🏽",
		"👩\u200d💻":                   `👩\u200d💻`,
		"❤\ufe0f":                    `❤\ufe0f`,
		"a\nb\r\tc\x00\x1b[31m":      `a\nb\r\tc\x00\x1b[31m`,
		"a\x7f\u0085\u009b":          `a\x7f\u0085\u009b`,
		"\u2028\u2029":               `\u2028\u2029`,
		"pay\u202egnp.exe":           `pay\u202egnp.exe`,
		"\u2066a\u2069\u200e\u061c":  `\u2066a\u2069\u200e\u061c`,
		"a\u200bb\u2060\ufeff\u00ad": `a\u200bb\u2060\ufeff\u00ad`,
		"a\u00a0\u3000\u2003":        `a\u00a0\u3000\u2003`,
		"\u3164\uffa0\u115f\u034f":   `\u3164\uffa0\u115f\u034f`,
		"\u2800":                     `\u2800`,
		"x\U000e0041\U000e0100":      `x\U000e0041\U000e0100`,
		"\xff\xc3":                   `\xff\xc3`,
		"\ufffd":                     "\ufffd",
		"\ue000":                     `\ue000`,
		`DOMAIN\user \u202e`:         `DOMAIN\\user \\u202e`,
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q is shown as %s, wanted %s", text, got, want)
		}
	}
	if got := PrintableLine("name=\"a\\u202e\" \u202e\n"); got != `name="a\u202e" \u202e\n` {
		t.Errorf("a line is shown as %s", got)
	}
}

// FuzzPrintable checks that the result is harmless and unambiguous.
func FuzzPrintable(f *testing.F) {
	f.Add("a\nb", `a\nb`)
	f.Add("\xff", `\xff`)
	f.Add("\ufffd", "\xef")
	f.Add("❤\ufe0f", "❤")
	f.Fuzz(func(t *testing.T, a, b string) {
		shown := Printable(a)
		if !utf8.ValidString(shown) {
			t.Errorf("%q is shown as %q, which is not UTF-8", a, shown)
		}
		for _, r := range shown {
			if unicode.In(r, unicode.C, unicode.Z) && r != ' ' {
				t.Errorf("%q is shown as %q, with a raw %U", a, shown, r)
			}
		}
		if a != b && shown == Printable(b) {
			t.Errorf("%q and %q are both shown as %s", a, b, shown)
		}
	})
}
