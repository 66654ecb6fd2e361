package argument

import (
	"bytes"
	"math"
	"strconv"
	"time"

	"github.com/quorumlock/quorumlock/server/redis/resp"
)

// Integer parses an integer.
func Integer(text []byte) (int64, error) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || text[0] == '+' {
		return 0, ErrInteger
	}
	return n, nil
}

// Milliseconds parses a TTL of a command, which is positive. One that is too long for a request becomes the longest,
// which the state machine refuses with the bounds of the cluster.
func Milliseconds(text []byte, unit time.Duration, command string) (uint32, error) {
	n, err := Integer(text)
	if err != nil {
		return 0, err
	}
	if n <= 0 {
		return 0, BadExpire(command)
	}
	return uint32(min(n, math.MaxUint32/unit.Milliseconds()) * unit.Milliseconds()), nil
}

// Is reports whether an argument is a word, in any letter case.
func Is(arg []byte, word string) bool { return bytes.EqualFold(arg, []byte(word)) }

// Timeout parses a duration in milliseconds, which may be zero.
func Timeout(text []byte) (uint32, error) {
	n, err := Integer(text)
	switch {
	case err != nil:
		return 0, err
	case n < 0:
		return 0, resp.Error("ERR timeout is negative")
	}
	return uint32(min(n, math.MaxUint32)), nil
}
