package wire

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

func TestValidText(t *testing.T) {
	for _, text := range []string{"", "why not", "ünïcödé 名前 🔒", "right\u202eto left", "zero\u200bwidth"} {
		if err := ValidText("the reason", text); err != nil {
			t.Errorf("%q is refused: %v", text, err)
		}
	}
	for text, why := range map[string]string{
		"\xff":        "the reason is not valid UTF-8",
		"a\nb":        "the reason has the control character U+000A at byte 1",
		"\x1b[2J":     "U+001B at byte 0",
		"caf\u00e9\t": "U+0009 at byte 5",
		"a\u0085":     "U+0085",
	} {
		if err := ValidText("the reason", text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, wanted %q", text, err, why)
		}
	}
}

func TestValidClientInfo(t *testing.T) {
	good := func() *ClientInfo {
		return &ClientInfo{Name: "n", HostName: "h", BootId: "b", Address: "a", Labels: []*Label{{Key: "k", Value: "v"}}}
	}
	if err := ValidClientInfo(good()); err != nil {
		t.Fatal(err)
	}
	if err := ValidClientInfo(nil); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(*ClientInfo){
		"client's name":    func(i *ClientInfo) { i.Name = "\xff" },
		"host name":        func(i *ClientInfo) { i.HostName = "\n" },
		"boot id":          func(i *ClientInfo) { i.BootId = "\x00" },
		"address":          func(i *ClientInfo) { i.Address = "\x7f" },
		"key of a label":   func(i *ClientInfo) { i.Labels[0].Key = "\r" },
		"value of a label": func(i *ClientInfo) { i.Labels[0].Value = "\xc3" },
	} {
		info := good()
		spoil(info)
		if err := ValidClientInfo(info); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
