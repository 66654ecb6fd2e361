package wire

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes is the maximum length of a lock name, in bytes of UTF-8.
const MaxNameBytes = 512

// ValidName returns an error if a lock name is not allowed. A name is 1 to MaxNameBytes bytes of UTF-8
// without control characters. It consists of segments separated by '/', none of which is empty, "." or
// "..". The state machine, the servers and the SDK all use this rule.
func ValidName(name string) error {
	if name == "" {
		return errors.New("the lock name is empty")
	}
	if len(name) > MaxNameBytes {
		return fmt.Errorf("the lock name has %d bytes: at most %d are allowed", len(name), MaxNameBytes)
	}
	if err := ValidText("the lock name", name); err != nil {
		return err
	}
	start := 0
	for i := range len(name) {
		if name[i] == '/' {
			if err := validSegment(name[start:i]); err != nil {
				return err
			}
			start = i + 1
		}
	}
	return validSegment(name[start:])
}

func validSegment(segment string) error {
	switch segment {
	case "":
		return errors.New("the lock name has an empty segment: no leading, trailing or double '/'")
	case ".", "..":
		return fmt.Errorf("the lock name has the segment %q", segment)
	}
	return nil
}

// ValidText returns an error if a text is not UTF-8 or contains a control character. This is the rule for
// every text for people: names, labels, reasons, agents. what names the text in the error.
func ValidText(what, text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("%s is not valid UTF-8", what)
	}
	for i, r := range text {
		if unicode.IsControl(r) {
			return fmt.Errorf("%s has the control character %U at byte %d", what, r, i)
		}
	}
	return nil
}

// MaxReasonBytes, MaxOperatorBytes and MaxTicketBytes bound the texts that an operator gives with an action, in bytes.
const (
	MaxReasonBytes   = 1024
	MaxOperatorBytes = 256
	MaxTicketBytes   = 256
)

// Act is an operator's request, with the reason, the operator and the ticket that it claims.
type Act interface {
	GetReason() string
	GetOperator() string
	GetTicket() string
}

// ValidReason returns an error unless an operator's action has a reason, and its texts can be stored. The operator and
// the ticket may be empty.
func ValidReason(act Act) error {
	if strings.TrimSpace(act.GetReason()) == "" {
		return errors.New("the reason is missing: say why, for the audit log")
	}
	return ValidActTexts(act)
}

// ValidActTexts is ValidReason for a reason that may be missing.
func ValidActTexts(act Act) error {
	for _, one := range [...]struct {
		what, text string
		most       int
	}{
		{"the reason", act.GetReason(), MaxReasonBytes},
		{"the operator", act.GetOperator(), MaxOperatorBytes},
		{"the ticket", act.GetTicket(), MaxTicketBytes},
	} {
		if len(one.text) > one.most {
			return fmt.Errorf("%s has %d bytes: at most %d are allowed", one.what, len(one.text), one.most)
		}
		if err := ValidText(one.what, one.text); err != nil {
			return err
		}
	}
	return nil
}

// ValidClientInfo returns an error if one of the texts in a session's client information violates the
// rule of ValidText. Nil is valid.
func ValidClientInfo(info *ClientInfo) error {
	for _, text := range [...]struct{ what, text string }{
		{"the client's name", info.GetName()},
		{"the client's host name", info.GetHostName()},
		{"the client's boot id", info.GetBootId()},
		{"the client's address", info.GetAddress()},
	} {
		if err := ValidText(text.what, text.text); err != nil {
			return err
		}
	}
	for _, label := range info.GetLabels() {
		if err := ValidText("the key of a label", label.GetKey()); err != nil {
			return err
		}
		if err := ValidText("the value of a label", label.GetValue()); err != nil {
			return err
		}
	}
	return nil
}
