package jsoncodec

import (
	"bytes"
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestCompact verifies that compact agrees with encoding/json, whatever the strings contain.
func TestCompact(t *testing.T) {
	odd := []string{"", " ", `a "quoted" word`, `\`, `\" `, "tab\t nul\x00 line\n", "ü ß 𝄞 \u2028", `{"a": [1, 2]} `}
	page := &wire.ListLocksResponse{Revision: 1 << 60}
	for _, text := range odd {
		page.Locks = append(page.Locks, &wire.LockInfo{Name: text, Holders: []*wire.HolderInfo{{
			Value: []byte(text), Client: &wire.ClientInfo{Name: text, Labels: []*wire.Label{{Key: text, Value: text}}},
		}}})
	}
	plain, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(page)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"as it comes":      plain,
		"with more blanks": bytes.ReplaceAll(plain, []byte(`":`), []byte(`": `)), // also within strings
	} {
		var want bytes.Buffer
		if err := json.Compact(&want, data); err != nil {
			t.Fatal(name, err)
		}
		if got := compact(bytes.Clone(data)); !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s: %s, want %s", name, got, want.Bytes())
		}
	}
	got, err := Codec{}.Marshal(page)
	if err != nil || !json.Valid(got) {
		t.Errorf("%s, %v", got, err)
	}
}

func TestMarshalOfNoMessage(t *testing.T) {
	if _, err := (Codec{}).Marshal(struct{}{}); err == nil {
		t.Error("no error")
	}
}

func BenchmarkPageAsJSON(b *testing.B) {
	page := &wire.ListLocksResponse{}
	for range 500 {
		page.Locks = append(page.Locks, &wire.LockInfo{Name: "some/lock", Holders: []*wire.HolderInfo{{Value: make([]byte, 1_000)}}})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (Codec{}).Marshal(page); err != nil {
			b.Fatal(err)
		}
	}
}
