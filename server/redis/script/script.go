package script

import (
	"bytes"
	"crypto/sha1" // the name of a script in the protocol of Redis
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// MaxSource is the most bytes of a script.
const MaxSource = 16 << 10

// ErrUnknown is returned when a script is not one of the operations. The text that wraps it says why.
var ErrUnknown = errors.New("unknown script")

// Action is an operation on keys.
type Action int

const (
	// Acquire acquires the keys if all are free, otherwise none: Done or Other. A key that holds the caller's value is
	// not free.
	Acquire Action = iota + 1
	// AcquireOrExtend acquires the keys if all are free (Done), or sets the TTL of the keys if the caller holds all of
	// them (Extended). Otherwise, also if some are free and others are the caller's, nothing changes (Other).
	AcquireOrExtend
	// Extend sets the TTL of the keys if the caller holds all of them (Done).
	Extend
	// AddTTL adds the TTL to what remains of the key's TTL if the caller holds it (Done). It has one key.
	AddTTL
	// Release releases those keys that the caller holds: Done if there is one.
	Release
	// ReleaseAll releases the keys if the caller holds all of them (Done).
	ReleaseAll
	// Remaining changes nothing: Done if the caller holds all keys. The remaining time of many keys is the shortest.
	Remaining
	// Read changes nothing: Done if the key exists, whoever holds it; otherwise Absent. It has one key and no value.
	Read
)

// Outcome is what an operation found and did.
type Outcome int

const (
	// Done means that the operation had its effect.
	Done Outcome = iota
	// Extended means that AcquireOrExtend extended the caller's own hold.
	Extended
	// Absent means that nothing changed: the first key that is not the caller's does not exist.
	Absent
	// Other means that nothing changed: the first key that is not the caller's is held with another value. For Acquire,
	// it means that one of the keys is held.
	Other
)

// ReplyKind is the kind of a reply.
type ReplyKind int

const (
	// Nil is a null reply.
	Nil ReplyKind = iota
	// Integer is the integer Reply.Integer.
	Integer
	// Status is the simple string Reply.Text.
	Status
	// Bulk is the bulk string Reply.Text.
	Bulk
	// Value is the key's value. It is the caller's value, except for Read.
	Value
	// Count is how many keys the operation changed.
	Count
	// Keys is the number of keys.
	Keys
	// PTTL is the remaining time in milliseconds.
	PTTL
	// ValuePTTL is an array of the key's value and its remaining time in milliseconds, or of null and -2 if it is absent.
	ValuePTTL
	// Error is an error reply with Reply.Text, as Redis 7 words it.
	Error
)

// Reply is what the script answers.
type Reply struct {
	Kind    ReplyKind
	Integer int64
	Text    string
}

// Call is a script with its arguments.
type Call struct {
	Action Action
	// Keys are distinct.
	Keys [][]byte
	// Value is the caller's value. Read has none.
	Value []byte
	// CompareBytes is how many first bytes of a key's value must equal those of Value for the key to be the caller's. The
	// operation then replaces the value. If it is zero, the whole values must be equal. Only AcquireOrExtend has it.
	CompareBytes int
	// TTL is positive, for operations that have one.
	TTL time.Duration
	// Replies has an entry for each outcome of the action. All calls of a script share it: it must not be changed.
	Replies map[Outcome]Reply
}

// Script is a recognised script. It is immutable.
type Script struct {
	argv  int // how many arguments it needs
	forms []form
}

// SHA1 returns the name of a script for EVALSHA: the hash of its source in lower-case hex digits.
func SHA1(source []byte) string {
	sum := sha1.Sum(source)
	return hex.EncodeToString(sum[:])
}

// Recognise returns the operation that a script is. It returns an error that wraps ErrUnknown for all other scripts.
// Its work is bounded, whatever the source.
func Recognise(source []byte) (*Script, error) {
	chunk, err := parseChunk(source)
	if err != nil {
		return nil, err
	}
	return recognise(chunk)
}

// Bind returns the operation for keys and arguments, which must stay unchanged while the Call is used.
func (s *Script) Bind(keys, argv [][]byte) (Call, error) {
	if len(argv) < s.argv {
		return Call{}, fmt.Errorf("the script needs %d arguments and has %d: pass them after the keys", s.argv, len(argv))
	}
	form, err := s.choose(argv)
	if err != nil {
		return Call{}, err
	}
	if keys, err = form.keys(keys); err != nil {
		return Call{}, err
	}
	return form.bind(keys, argv)
}

// maxKeys is the most keys of a call. Redis' unpack fails at about 8,000 values.
const maxKeys = 1000

// keys returns the keys that the script uses, which are distinct. Redis permits further ones.
func (f *form) keys(keys [][]byte) ([][]byte, error) {
	switch {
	case len(keys) == 0:
		return nil, errors.New("the script got no keys: pass at least one")
	case !f.many:
		return keys[:1], nil
	case len(keys) > maxKeys:
		return nil, fmt.Errorf("the script got %d keys: pass at most %d", len(keys), maxKeys)
	}
	seen := make(map[string]bool, len(keys))
	for _, key := range keys {
		if seen[string(key)] {
			return nil, fmt.Errorf("the script got the key %.100q twice: pass each key once", key)
		}
		seen[string(key)] = true
	}
	return keys, nil
}

// choose returns the form whose tests of arguments have the results that argv gives.
func (s *Script) choose(argv [][]byte) (*form, error) {
	for i := range s.forms {
		ok, err := s.forms[i].matches(argv)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if err := s.forms[i].err; err != nil {
			return nil, fmt.Errorf("with these arguments: %w", err)
		}
		return &s.forms[i], nil
	}
	return nil, fmt.Errorf("with these arguments: %w", ErrUnknown) // the forms cover all arguments
}

func (f *form) bind(keys, argv [][]byte) (Call, error) {
	for _, arg := range f.integers {
		if _, err := integer(argv, arg); err != nil {
			return Call{}, err
		}
	}
	call := Call{Action: f.action, Keys: keys, Replies: f.replies}
	if f.value != nil {
		call.Value = f.value.bytes(argv)
	}
	if f.prefix != 0 {
		n, err := integer(argv, f.prefix)
		if err != nil {
			return Call{}, err
		}
		if n < 1 || n > int64(len(call.Value)) {
			return Call{}, fmt.Errorf("ARGV[%d] is %d: pass the length of the token, from 1 to the value's %d bytes",
				f.prefix, n, len(call.Value))
		}
		call.CompareBytes = int(n)
	}
	var err error
	if f.ttl != nil {
		call.TTL, err = f.ttl.duration(argv)
	}
	return call, err
}

// bytes returns the value of an operand.
func (o operand) bytes(argv [][]byte) []byte {
	if o.arg == 0 {
		return []byte(o.text)
	}
	return argv[o.arg-1]
}

// duration returns the TTL.
func (e expiry) duration(argv [][]byte) (time.Duration, error) {
	n := e.constant
	if e.arg != 0 {
		var err error
		if n, err = integer(argv, e.arg); err != nil {
			return 0, err
		}
	}
	if n <= 0 || n > int64(maxTTL/e.unit) {
		return 0, fmt.Errorf("the TTL is %d: pass an integer from 1 to %d", n, maxTTL/e.unit)
	}
	return time.Duration(n) * e.unit, nil
}

// maxTTL is far above what the state machine permits, and far below where numbers overflow.
const maxTTL = 100 * 365 * 24 * time.Hour

// integer returns an argument that must be an integer, spelled as Redis spells it.
func integer(argv [][]byte, arg int) (int64, error) {
	text := argv[arg-1]
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || !bytes.Equal(strconv.AppendInt(nil, n, 10), text) || n > maxInteger || n < -maxInteger {
		return 0, fmt.Errorf("ARGV[%d] is %.40q: pass an integer", arg, text)
	}
	return n, nil
}

// maxInteger bounds integers to those that a float64, the number of Lua, represents exactly.
const maxInteger = 1 << 53
