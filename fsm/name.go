package fsm

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes is the length of the longest lock name, in bytes of UTF-8.
const MaxNameBytes = 512

// ValidName says why a lock name is refused, or nil. A name is 1 to MaxNameBytes
// bytes of UTF-8, segments parted by '/', none of them empty, "." or "..", and
// without control characters.
func ValidName(name string) error {
	if name == "" {
		return errors.New("the lock name is empty")
	}
	if len(name) > MaxNameBytes {
		return fmt.Errorf("the lock name has %d bytes: at most %d are allowed", len(name), MaxNameBytes)
	}
	if !utf8.ValidString(name) {
		return errors.New("the lock name is not valid UTF-8")
	}
	start := 0
	for i, r := range name {
		if unicode.IsControl(r) {
			return fmt.Errorf("the lock name has the control character %U at byte %d", r, i)
		}
		if r == '/' {
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
