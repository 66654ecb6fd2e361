package access

import (
	"cmp"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxTextBytes bounds each text of a request, in bytes. The longest is a page token, which contains two names.
const maxTextBytes = 2 << 10

// CheckForm refuses a request, a message of the schema, whose lock names or other texts no request may have. It comes
// before rights, because looking them up and reporting a denial cost time and space in proportion to the texts.
func CheckForm(request proto.Message) *wire.Result {
	switch op := request.(type) { // the frequent ones first, without reflection
	case *wire.Acquire:
		return fsm.ValidNames(op.GetLocks())
	case *wire.Release, *wire.Heartbeat:
		return nil
	}
	return cmp.Or(checkNames(request), checkTexts(request.ProtoReflect()))
}

// checkNames refuses a request with an invalid lock name.
func checkNames(request proto.Message) *wire.Result {
	switch op := request.(type) {
	case *wire.AcquireRequest:
		if len(op.GetLocks()) == 0 {
			return malformed(wire.ValidName(op.GetName()))
		}
		return fsm.ValidNames(op.GetLocks())
	case interface{ GetAcquire() *wire.Acquire }:
		return fsm.ValidNames(op.GetAcquire().GetLocks())
	case *wire.GetLockRequest:
		return malformed(wire.ValidName(op.GetName()))
	case *wire.VerifyTokenRequest:
		return malformed(wire.ValidName(op.GetName()))
	case *wire.SkipDelay:
		return malformed(wire.ValidName(op.GetName()))
	case *wire.Resize:
		return malformed(wire.ValidName(op.GetName()))
	case *wire.WatchRequest:
		if op.GetName() != "" {
			return malformed(wire.ValidName(op.GetName()))
		}
	}
	return nil
}

// checkTexts refuses a message if one of its texts is too long, or is no text for people. The texts of a client's
// information have a bound of their own, which is a setting.
func checkTexts(m protoreflect.Message) (refused *wire.Result) {
	if _, ok := m.Interface().(*wire.ClientInfo); ok {
		return nil
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		check := func(v protoreflect.Value) bool { return true }
		switch field.Kind() {
		case protoreflect.StringKind:
			check = func(v protoreflect.Value) bool {
				refused = malformed(validText(field, v.String()))
				return refused == nil
			}
		case protoreflect.MessageKind:
			check = func(v protoreflect.Value) bool {
				refused = checkTexts(v.Message())
				return refused == nil
			}
		}
		if !field.IsList() {
			return check(value)
		}
		for i := range value.List().Len() {
			if !check(value.List().Get(i)) {
				return false
			}
		}
		return true
	})
	return refused
}

func validText(field protoreflect.FieldDescriptor, text string) error {
	if len(text) > maxTextBytes {
		return fmt.Errorf("%s has %d bytes: at most %d are allowed", field.Name(), len(text), maxTextBytes)
	}
	return wire.ValidText(string(field.Name()), text)
}

func malformed(err error) *wire.Result {
	if err == nil {
		return nil
	}
	return &wire.Result{Status: wire.Status_INVALID_ARGUMENT, Message: err.Error()}
}
