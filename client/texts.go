package client

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxOwnText bounds the texts with which the client describes its machine and program, in bytes.
const maxOwnText = 128

// checkTexts returns ErrInvalidArgument if a text in a request violates the rules of [wire.ValidName] or
// [wire.ValidText]. It runs before a request is queued, so the caller gets the error immediately and no
// connection has to carry a request that cannot be encoded. It finds the texts through the schema, so new
// fields are checked as well.
func checkTexts(request *wire.Request) error {
	if a := request.GetAcquire(); a != nil {
		return checkLocks(a.Locks)
	}
	return checkMessage(request.ProtoReflect())
}

// checkLocks is checkTexts for acquires, which are frequent.
func checkLocks(locks []*wire.LockRequest) error {
	for _, l := range locks {
		if err := wire.ValidName(l.Name); err != nil {
			return refusedText(err, l.Name)
		}
	}
	return nil
}

// checkMessage checks the texts of a message and of its nested messages.
func checkMessage(m protoreflect.Message) (err error) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsList():
			for i := 0; i < value.List().Len() && err == nil; i++ {
				err = checkValue(field, value.List().Get(i))
			}
		case !field.IsMap():
			err = checkValue(field, value)
		}
		return err == nil
	})
	return err
}

func checkValue(field protoreflect.FieldDescriptor, value protoreflect.Value) error {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return checkMessage(value.Message())
	case protoreflect.StringKind:
		switch err := checkText(field, value.String()); {
		case err != nil && field.Name() == "auth_token":
			return invalid("%v", err) // a secret
		case err != nil:
			return refusedText(err, value.String())
		}
	}
	return nil
}

func checkText(field protoreflect.FieldDescriptor, text string) error {
	name := string(field.FullName().Parent().Name()) + "." + string(field.Name())
	switch name {
	case "LockRequest.name", "GetLockRequest.name", "VerifyTokenRequest.name", "WatchRequest.name", "SkipDelay.name", "Resize.name":
		return wire.ValidName(text)
	}
	what := whatTexts[name]
	if what == "" {
		what = "the " + strings.ReplaceAll(string(field.Name()), "_", " ")
	}
	return wire.ValidText(what, text)
}

// whatTexts describes texts whose field name is not descriptive enough.
var whatTexts = map[string]string{
	"ClientInfo.name":              "the session's name",
	"Label.key":                    "the key of a label",
	"Label.value":                  "the value of a label",
	"AddMemberRequest.id":          "the node's id",
	"RemoveMemberRequest.id":       "the node's id",
	"SetDrainedRequest.id":         "the node's id",
	"TransferLeadershipRequest.id": "the node's id",
	"Role.name":                    "the role's name",
	"LockRule.name":                "the lock name of a rule",
	"LockRule.prefix":              "the prefix of a rule",
	"Binding.roles":                "the role of a binding",
	"CreateTokenRequest.name":      "the identity of the token",
	"RevokeToken.token_id":         "the token's id",
}

// refusedText adds the beginning of the text to the reason why it was refused.
func refusedText(reason error, text string) error {
	const shown = 64
	if len(text) > shown {
		return invalid("%v: it begins with %q", reason, text[:shown])
	}
	return invalid("%v: %q", reason, text)
}
