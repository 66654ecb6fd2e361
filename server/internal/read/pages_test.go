package read

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// listing requests one page of a listing.
type listing func(r *View, token string, size uint32) (next string, refused *wire.Result)

var listings = map[string]listing{
	"locks": func(r *View, token string, size uint32) (string, *wire.Result) {
		page, refused := r.ListLocks(&wire.ListLocksRequest{PageToken: token, PageSize: size})
		return page.GetNextPageToken(), refused
	},
	"locks with a prefix": func(r *View, token string, size uint32) (string, *wire.Result) {
		page, refused := r.ListLocks(&wire.ListLocksRequest{Prefix: "l/", PageToken: token, PageSize: size})
		return page.GetNextPageToken(), refused
	},
	"sessions": func(r *View, token string, size uint32) (string, *wire.Result) {
		page, refused := r.ListSessions(&wire.ListSessionsRequest{PageToken: token, PageSize: size})
		return page.GetNextPageToken(), refused
	},
	"audit": func(r *View, token string, size uint32) (string, *wire.Result) {
		page, refused := r.ListAudit(&wire.ListAuditRequest{PageToken: token, PageSize: size})
		return page.GetNextPageToken(), refused
	},
}

// paged returns a reader with three items of each kind.
func paged(t *testing.T) *View {
	s := newSource(t)
	for i := range byte(3) {
		session := s.open(t, 0, i+1)
		s.acquire(t, 0, session, 1, "l/"+string('a'+rune(i)))
		hold := s.apply(t, 0, &wire.Command{SessionId: session, Seq: 2, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: "gone"}},
		}}})
		s.apply(t, 0, &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{
			HoldId: hold.GetHoldId(), Token: hold.GetToken(), Reason: "stuck",
		}}})
	}
	return reader(s, 1<<20)
}

func TestPageSizesOutOfRange(t *testing.T) {
	r := paged(t)
	for name, list := range listings {
		if _, refused := list(r, "", maxPage); refused != nil {
			t.Errorf("%s: a page of %d: %v", name, maxPage, refused)
		}
		for _, size := range []uint32{maxPage + 1, 1 << 31, 1<<32 - 1} {
			_, refused := list(r, "", size)
			refusedFor(t, name, refused, "page_size", "1000")
		}
	}
	if _, refused := r.GetLock(&wire.GetLockRequest{Name: "l/a", QueueLimit: maxQueue}); refused != nil {
		t.Error(refused)
	}
	for _, name := range []string{"l/a", "free"} {
		_, refused := r.GetLock(&wire.GetLockRequest{Name: name, QueueLimit: maxQueue + 1})
		refusedFor(t, name, refused, "queue_limit", "10000")
	}
}

func refusedFor(t *testing.T, what string, refused *wire.Result, words ...string) {
	t.Helper()
	if refused.GetStatus() != wire.Status_INVALID_ARGUMENT {
		t.Errorf("%s: %v, want INVALID_ARGUMENT", what, refused)
	}
	for _, word := range words {
		if !strings.Contains(refused.GetMessage(), word) {
			t.Errorf("%s: %q does not say %s", what, refused.GetMessage(), word)
		}
	}
}

// seal adds a checksum to a body, as a caller who knows the token format could.
func seal(body string) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32([]byte(body), crc32.Checksum([]byte(body), castagnoli)))
}

// sealed are tokens with a valid checksum and a body that no listing produces.
var sealed = []string{
	seal(""), seal("l"), seal("s"), seal("a"),
	seal("l\xff"), seal("s\xff"), // the length is incomplete
	seal("l\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), // the length has too many bytes
	seal("l\x03l/"), seal("s\x01"), seal("a\x02x"), // the prefix is incomplete
	seal("l\x00"), seal("l\x02l/"), seal("s\x00"), seal("a\x00"), // nothing follows the prefix
	seal("l\x02l/m/a"), seal("s\x00x"), seal("a\x00-1"),
}

// TestPageTokensOfOthers verifies that a token of another listing, or a changed one, is rejected.
func TestPageTokensOfOthers(t *testing.T) {
	r := paged(t)
	tokens := map[string]string{}
	for name, list := range listings {
		token, refused := list(r, "", 1)
		if refused != nil || token == "" {
			t.Fatalf("%s: %q, %v", name, token, refused)
		}
		tokens[name] = token
		if next, refused := list(r, token, 1); refused != nil || next == "" || next == token {
			t.Errorf("%s: after %q comes %q, %v", name, token, next, refused)
		}
	}
	for name, list := range listings {
		for other, token := range tokens {
			if other != name {
				_, refused := list(r, token, 1)
				refusedFor(t, name+" with a token of "+other, refused, "page_token")
			}
		}
		raw, err := base64.RawURLEncoding.DecodeString(tokens[name])
		if err != nil {
			t.Fatal(err)
		}
		for i := range raw {
			changed := []byte(string(raw))
			changed[i] ^= 1
			_, refused := list(r, base64.RawURLEncoding.EncodeToString(changed), 1)
			refusedFor(t, name+" with a changed token", refused, "page_token")
		}
		for _, token := range sealed {
			_, refused := list(r, token, 1)
			refusedFor(t, name+" with the sealed token "+token, refused, "page_token")
		}
		for _, token := range []string{"l/a", "1", "-", "=", tokens[name] + "A", tokens[name][1:], strings.Repeat("A", 4096), "0000000001"} {
			_, refused := list(r, token, 1)
			refusedFor(t, name+" with the token "+token, refused, "page_token")
		}
	}
}

// TestPageAfterADeletedItem verifies that the next page can be requested after the last listed item is gone.
func TestPageAfterADeletedItem(t *testing.T) {
	s := newSource(t)
	session := s.open(t, 0, 1)
	for i, name := range []string{"a", "b", "c"} {
		s.acquire(t, 0, session, uint64(i+1), name)
	}
	r := reader(s, 1<<20)
	first, _ := r.ListLocks(&wire.ListLocksRequest{PageSize: 1})
	held := first.GetLocks()[0].GetHolders()[0]
	s.apply(t, 0, &wire.Command{SessionId: session, Seq: 9, Op: &wire.Command_Release{Release: &wire.Release{HoldId: held.GetHoldId(), Token: held.GetToken()}}})
	rest, refused := r.ListLocks(&wire.ListLocksRequest{PageToken: first.GetNextPageToken()})
	if refused != nil || len(rest.GetLocks()) != 2 || rest.GetLocks()[0].GetName() != "b" {
		t.Errorf("%v, %v", rest, refused)
	}
}
