package fsm

import (
	"strings"
	"testing"
)

func TestValidName(t *testing.T) {
	for _, name := range []string{
		"a", "orders/42", "a.b", "...", ".a", "a..b", "a/...", "with space", "ünïcödé/名前", "🔒",
		"a\u00a0b", "-", "%2e%2e", "a\\b", strings.Repeat("x", 512), strings.Repeat("é", 256),
		strings.Repeat("a/", 255) + "ab",
	} {
		if err := ValidName(name); err != nil {
			t.Errorf("%q is refused: %v", name, err)
		}
	}
	for name, why := range map[string]string{
		"":                             "empty",
		"/":                            "empty segment",
		"/a":                           "empty segment",
		"a/":                           "empty segment",
		"a//b":                         "empty segment",
		".":                            `segment "."`,
		"..":                           `segment ".."`,
		"a/./b":                        `segment "."`,
		"a/..":                         `segment ".."`,
		"../a":                         `segment ".."`,
		"a\x00b":                       "control character U+0000 at byte 1",
		"a\nb":                         "control character U+000A",
		"\t":                           "control character",
		"a\x7f":                        "control character U+007F",
		"a\u0085":                      "control character U+0085",
		"\xff":                         "UTF-8",
		"a/\xc3":                       "UTF-8",
		"\xed\xa0\x80":                 "UTF-8",
		strings.Repeat("x", 513):       "513 bytes",
		strings.Repeat("é", 256) + "x": "513 bytes",
	} {
		if err := ValidName(name); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, wanted %q", name, err, why)
		}
	}
}
