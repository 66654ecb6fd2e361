package argument

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/server/redis/resp"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// otherSetOptions are those of Redis that this port has not.
var otherSetOptions = []string{"keepttl", "exat", "pxat", "ifeq", "ifne", "ifdeq", "ifdne"}

// Set are the options of SET.
type Set struct {
	// Absent is NX, Present is XX.
	Absent, Present, Get bool
	// TTL is in milliseconds, 0 without one.
	TTL uint32
}

// ParseSet parses what follows the value of SET.
func ParseSet(args [][]byte) (o Set, err error) {
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case Is(arg, "nx") && !o.Present:
			o.Absent = true
		case Is(arg, "xx") && !o.Absent:
			o.Present = true
		case Is(arg, "get"):
			o.Get = true
		case (Is(arg, "px") || Is(arg, "ex")) && o.TTL == 0 && i+1 < len(args):
			unit := time.Millisecond
			if Is(arg, "ex") {
				unit = time.Second
			}
			i++
			if o.TTL, err = Milliseconds(args[i], unit, "set"); err != nil {
				return o, err
			}
		case slices.ContainsFunc(otherSetOptions, func(word string) bool { return Is(arg, word) }):
			return o, Unsupported("SET with " + string(arg))
		default:
			return o, ErrSyntax
		}
	}
	return o, nil
}

// ParseLock parses what follows the value of QL.LOCK: PX ttl and WAIT ms, each once.
func ParseLock(args [][]byte) (ttl, wait uint32, err error) {
	waits := false
	for i := 0; i+1 < len(args) && err == nil; i += 2 {
		switch {
		case Is(args[i], "px") && ttl == 0:
			ttl, err = Milliseconds(args[i+1], time.Millisecond, "ql.lock")
		case Is(args[i], "wait") && !waits:
			waits = true
			wait, err = Timeout(args[i+1])
		default:
			err = ErrSyntax
		}
	}
	if err == nil && (ttl == 0 || !waits) {
		err = ErrSyntax
	}
	return ttl, wait, err
}

// Hello are the options of HELLO.
type Hello struct {
	// Version is that of the protocol, 0 to keep the present one.
	Version int64
	// Auth are the user and the token; nil without them.
	Auth [][]byte
	// Name is that of the client if Named is set.
	Name  string
	Named bool
}

// ParseHello parses what follows HELLO.
func ParseHello(args [][]byte) (o Hello, err error) {
	if len(args) == 0 {
		return o, nil
	}
	if o.Version, err = Integer(args[0]); err != nil {
		return o, resp.Error("ERR Protocol version is not an integer or out of range")
	}
	if o.Version != 2 && o.Version != 3 {
		return o, resp.Error("NOPROTO unsupported protocol version")
	}
	for i := 1; i < len(args); i++ {
		switch rest := args[i+1:]; {
		case Is(args[i], "auth") && len(rest) >= 2:
			o.Auth = rest[:2]
			i += 2
		case Is(args[i], "setname") && len(rest) >= 1:
			if o.Name, err = ClientName(rest[0]); err != nil {
				return o, err
			}
			o.Named = true
			i++
		default:
			return o, resp.Error(fmt.Sprintf("ERR Syntax error in HELLO option '%s'", wire.CleanText(string(args[i]), 128)))
		}
	}
	return o, nil
}

// maxClientName bounds the name of a client in bytes.
const maxClientName = 256

// ClientName checks the name of a client as Redis does.
func ClientName(text []byte) (string, error) {
	if len(text) > maxClientName || wire.ValidText("", string(text)) != nil || strings.ContainsAny(string(text), " \n") {
		return "", resp.Error("ERR Client names cannot contain spaces, newlines or special characters.")
	}
	return string(text), nil
}

// SplitKeys parses what follows the script of EVAL or EVALSHA: the number of keys, the keys and the other arguments.
func SplitKeys(args [][]byte) (keys, argv [][]byte, err error) {
	n, err := Integer(args[0])
	rest := args[1:]
	switch {
	case err != nil:
		return nil, nil, err
	case n < 0:
		return nil, nil, resp.Error("ERR Number of keys can't be negative")
	case n > int64(len(rest)):
		return nil, nil, resp.Error("ERR Number of keys can't be greater than number of args")
	}
	return rest[:n], rest[n:], nil
}
