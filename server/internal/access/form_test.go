package access_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestFormIsCheckedBeforeRights walks every text of every request of the schema. A text that is too long, or that has a
// control character, is refused before the rights are looked up, with a short message and without a denial.
func TestFormIsCheckedBeforeRights(t *testing.T) {
	c, texts := rights.New(t), 0
	denied := func(d access.Denial) { t.Errorf("reported %v", d) }
	caller, err := access.Authenticate(c, "c1", access.Presented{Token: c.Tokens["other"], Secure: true, Denials: denied})
	if err != nil {
		t.Fatal(err)
	}
	for name, request := range rights.Requests(c.Hold) {
		eachText(request.ProtoReflect(), func(set func(string), path string) {
			texts++
			for _, text := range []string{strings.Repeat("/", 500_000), "a\x01", "\xff"} {
				set(text)
				res := caller.Check(request)
				if res.GetStatus() != wire.Status_INVALID_ARGUMENT || len(res.GetMessage()) > 200 {
					t.Errorf("%s with %.10q as %s: %v, %d bytes", name, text, path, res.GetStatus(), len(res.GetMessage()))
				}
			}
		})
	}
	if texts < 60 {
		t.Errorf("%d texts: the walk misses some", texts)
	}
}

// eachText calls f for each text of a message, except those of the client's information, which a setting bounds.
func eachText(m protoreflect.Message, f func(set func(string), path string)) {
	if _, ok := m.Interface().(*wire.ClientInfo); ok {
		return
	}
	for i := range m.Descriptor().Fields().Len() {
		field := m.Descriptor().Fields().Get(i)
		had, before := m.Has(field), m.Get(field)
		put := func(v protoreflect.Value) {
			if field.IsList() {
				list := m.NewField(field)
				list.List().Append(v)
				v = list
			}
			m.Set(field, v)
		}
		nested := func(set func(string), path string) { f(set, string(field.Name())+"."+path) }
		switch field.Kind() {
		case protoreflect.StringKind:
			f(func(text string) { put(protoreflect.ValueOfString(text)) }, string(field.Name()))
		case protoreflect.MessageKind:
			child := m.NewField(field)
			if field.IsList() {
				child = child.List().NewElement()
			}
			if lock, ok := child.Message().Interface().(*wire.LockRequest); ok {
				lock.Name = rights.Lock
			}
			put(child)
			eachText(child.Message(), nested)
		}
		m.Clear(field)
		if had {
			m.Set(field, before)
		}
	}
}

// TestNamesAreCheckedBeforeRights verifies that the names of locks follow their rules wherever a request names one.
func TestNamesAreCheckedBeforeRights(t *testing.T) {
	caller := as(t, rights.New(t), "other")
	bad := []*wire.LockRequest{{Name: "a"}, {Name: "a//b"}}
	for _, request := range []proto.Message{
		&wire.Acquire{Locks: bad}, &wire.Acquire{}, &wire.Acquire{Locks: make([]*wire.LockRequest, 65)},
		&wire.AcquireRequest{Locks: bad}, &wire.AcquireRequest{Name: "a//b"}, &wire.AcquireRequest{},
		&wire.AcquireLeaseRequest{Acquire: &wire.Acquire{Locks: bad}}, &wire.AcquireLeaseRequest{},
		&wire.AcquireCached{Acquire: &wire.Acquire{Locks: bad}}, &wire.AcquireCached{},
		&wire.GetLockRequest{Name: "a//b"}, &wire.GetLockRequest{}, &wire.VerifyTokenRequest{Name: "a//b"},
		&wire.SkipDelay{Name: "a//b"}, &wire.Resize{Name: "a//b"}, &wire.WatchRequest{Name: "a//b"},
	} {
		if res := caller.Check(request); res.GetStatus() != wire.Status_INVALID_ARGUMENT {
			t.Errorf("%T %v: %v", request, request, res)
		}
	}
}

// TestDenialsAreShort verifies that a denial reports a message of bounded size whatever it was about.
func TestDenialsAreShort(t *testing.T) {
	c := rights.New(t)
	var reported access.Denial
	caller, err := access.Authenticate(c, "c1", access.Presented{Token: c.Tokens["other"], Secure: true, Denials: func(d access.Denial) { reported = d }})
	if err != nil {
		t.Fatal(err)
	}
	caller.Denied(&wire.GetLockRequest{}, &wire.Result{Status: wire.Status_PERMISSION_DENIED, Message: strings.Repeat("a\x01", 500_000)})
	if n := len(reported.Message); n == 0 || n > 4<<10 || strings.Contains(reported.Message, "\x01") {
		t.Errorf("a message of %d bytes", n)
	}
}
