package history

import (
	"bytes"
	"fmt"
	"strconv"
)

// respValue is a value of the Redis protocol, in version 2 or 3.
type respValue struct {
	kind    byte
	null    bool
	text    string
	integer int64
	items   []respValue
}

// Kinds of values that matter to the tap.
const (
	respError   = '-'
	respInteger = ':'
	respPush    = '>'
)

// readRESP reads the value at the beginning of b. size is 0 if it is incomplete.
func readRESP(b []byte) (v respValue, size int, err error) {
	line, _, complete := bytes.Cut(b, []byte("\r\n"))
	if !complete {
		return v, 0, nil
	}
	if len(line) == 0 {
		return v, 0, fmt.Errorf("an empty line instead of a value")
	}
	v.kind, v.text, size = line[0], string(line[1:]), len(line)+2
	switch v.kind {
	case '+', respError, '#', ',', '(':
		return v, size, nil
	case '_':
		v.null = true
		return v, size, nil
	}
	if v.integer, err = strconv.ParseInt(v.text, 10, 64); err != nil {
		return v, 0, fmt.Errorf("%q: %w", line, err)
	}
	switch v.kind {
	case respInteger:
		return v, size, nil
	case '$', '=', '!':
		return v.bulk(b, size)
	case '*', '~', respPush:
		return v.aggregate(b, size, v.integer)
	case '%':
		return v.aggregate(b, size, 2*v.integer)
	}
	return v, 0, fmt.Errorf("%q is no value", line)
}

// bulk reads the text of a value after its length.
func (v respValue) bulk(b []byte, from int) (respValue, int, error) {
	if v.null = v.integer < 0; v.null {
		return v, from, nil
	}
	end := from + int(v.integer)
	if len(b) < end+2 {
		return v, 0, nil
	}
	if v.text = string(b[from:end]); v.kind == '!' {
		v.kind = respError
	}
	return v, end + 2, nil
}

// aggregate reads the items of a value after their number.
func (v respValue) aggregate(b []byte, from int, count int64) (respValue, int, error) {
	v.null = v.integer < 0
	for range count {
		item, size, err := readRESP(b[from:])
		if size == 0 {
			return v, 0, err
		}
		v.items, from = append(v.items, item), from+size
	}
	return v, from, nil
}
