package virtual_test

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// This is who may do what, and what a number changes about it, written from the specification and not from the product.

// allowed are the parties that may send a request that requires a right. Requests about rights.Lock and about the
// party's own hold, of a lock below b/, have columns of their own.
var allowed = map[wire.Right]struct{ plain, named, hold []string }{
	wire.Right_IDENTITY:       {plain: anybody},
	wire.Right_OWN:            {plain: anybody},
	wire.Right_ANY_ROLE:       {plain: []string{"tenant", "locker", "owner", "reader", "admin"}},
	wire.Right_READ_LOCKS:     {plain: []string{"tenant", "owner", "reader", "admin"}, named: []string{"owner", "reader", "admin"}},
	wire.Right_VERIFY_LOCKS:   {named: []string{"locker", "owner", "reader", "admin"}},
	wire.Right_LOCK_SOME:      {plain: []string{"tenant", "locker", "owner", "admin"}},
	wire.Right_LOCK_LOCKS:     {named: []string{"locker", "owner", "admin"}, hold: []string{"tenant", "admin"}},
	wire.Right_OPERATE_LOCKS:  {plain: []string{"admin"}, named: []string{"admin"}, hold: []string{"admin"}},
	wire.Right_READ_AUDIT:     {plain: []string{"admin"}},
	wire.Right_SAVE_BACKUP:    {plain: []string{"admin"}},
	wire.Right_CHANGE_MEMBERS: {plain: []string{"admin"}},
	wire.Right_RESTORE_BACKUP: {plain: []string{"admin"}},
	wire.Right_CHANGE_POLICY:  {plain: []string{"admin"}},
}

// parties are the callers. Each is the identity of its name.
var parties = []string{"nobody", "tenant", "locker", "owner", "reader", "admin"}

var anybody = parties

// partiesPolicy gives them their roles, and nobody none.
func partiesPolicy() *wire.Policy {
	lock, read := wire.Verb_LOCK, wire.Verb_READ
	p := &wire.Policy{Roles: []*wire.Role{
		{Name: "tenant", Locks: []*wire.LockRule{{Prefix: "b/", Verbs: []wire.Verb{read, lock}}}},
		{Name: "locker", Locks: []*wire.LockRule{{Name: rights.Lock, Verbs: []wire.Verb{lock}}}},
		{Name: "owner", Locks: []*wire.LockRule{{Name: rights.Lock, Verbs: []wire.Verb{read, lock}}}},
	}}
	for _, name := range parties[1:] {
		p.Bindings = append(p.Bindings, &wire.Binding{Identity: name, Roles: []string{name}})
	}
	return p
}

// mayAsk reports whether a party may send a request. known is false if the specification does not say so.
func mayAsk(party string, request proto.Message) (may, known bool) {
	right, _ := proto.GetExtension(request.ProtoReflect().Descriptor().Options(), wire.E_Right).(wire.Right)
	row, known := allowed[right]
	may = slices.Contains(row.plain, party)
	switch {
	case right == wire.Right_IDENTITY || right == wire.Right_OWN:
	case namesLock(request.ProtoReflect()):
		may = slices.Contains(row.named, party)
	case request.ProtoReflect().Descriptor().Fields().ByName("hold_id") != nil:
		may = slices.Contains(row.hold, party)
	}
	return may, known
}

// namesLock reports whether rights.Lock occurs in a request.
func namesLock(m protoreflect.Message) (found bool) {
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsList() && field.Kind() == protoreflect.MessageKind:
			for i := range v.List().Len() {
				found = found || namesLock(v.List().Get(i).Message())
			}
		case field.IsList() || field.IsMap():
		case field.Kind() == protoreflect.MessageKind:
			found = found || namesLock(v.Message())
		case field.Kind() == protoreflect.StringKind:
			found = found || v.String() == rights.Lock
		}
		return true
	})
	return found
}

// kinds are the requests whose outcomes are remembered, by the name of the operation. No other one has a number.
var kinds = []string{"Acquire", "AcquireCached", "Release", "Cancel", "SetValue", "Upgrade", "Downgrade", "Extend"}

// kindOf returns the kind of a request, the same for a frame and for HTTP. It is empty if the request has no number.
func kindOf(request proto.Message) string {
	name := strings.TrimSuffix(string(request.ProtoReflect().Descriptor().Name()), "Request")
	if slices.Contains(kinds, name) {
		return name
	}
	return ""
}

// number is the number that a request carries.
type number int

const (
	none      number = iota
	executed         // of this very request, in the party's session
	pending          // likewise, of an acquire that waits
	reused           // of another request in the party's session
	waiting          // of another request in the party's session, which waits
	below            // below the mark of the party's session
	elsewhere        // of this very request, in a session of the party that is attached to another connection
	another          // of a request of another identity
	stranger         // in a session that does not exist
	numbers
)

func (n number) String() string {
	return []string{"no number", "its own number", "its own number, waiting", "a reused number", "a number of a waiting request", "a number below the mark",
		"a number of its other session", "a number of somebody else", "a number of a stranger"}[n]
}

// verdict is what a request must be answered.
type verdict struct {
	// status is 0 for any but a denial.
	status wire.Status_Code
	// outcome is set if the answer must be the remembered outcome.
	outcome bool
}

// framedVerdict returns the verdict on a framed request at the leader, or at a follower.
func framedVerdict(may, atLeader bool, request proto.Message, n number) verdict {
	numbered, own := kindOf(request) != "", n == executed || n == pending
	unattached := verdict{status: wire.Status_NOT_ATTACHED}
	if !atLeader {
		unattached.status = wire.Status_NOT_LEADER
	}
	switch {
	case !may && !(numbered && (own || n == elsewhere)):
		return verdict{status: wire.Status_PERMISSION_DENIED}
	case !numbered && n == none:
		return verdict{}
	case !numbered:
		return verdict{status: wire.Status_INVALID_ARGUMENT}
	case !atLeader, n == none, n == elsewhere, n == another, n == stranger:
		return unattached
	case own:
		return verdict{outcome: true}
	case n == below:
		return verdict{status: wire.Status_STALE}
	}
	return verdict{status: wire.Status_INVALID_ARGUMENT}
}

// httpVerdict returns the verdict on a request over HTTP, which shows the secret of its session.
func httpVerdict(may bool, request proto.Message, n number) verdict {
	numbered, own := kindOf(request) != "", n == executed || n == elsewhere
	switch {
	case !may && !(numbered && own):
		return verdict{status: wire.Status_PERMISSION_DENIED}
	case !numbered:
		return verdict{}
	case own:
		return verdict{outcome: true}
	case n == another:
		return verdict{status: wire.Status_PERMISSION_DENIED} // for the secret
	case n == stranger:
		return verdict{status: wire.Status_SESSION_LOST}
	case n == below:
		return verdict{status: wire.Status_STALE}
	}
	return verdict{status: wire.Status_INVALID_ARGUMENT}
}
