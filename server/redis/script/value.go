package script

import (
	"strconv"
	"time"
)

// kind is the kind of a symbolic value.
type kind int

const (
	kindNil       kind = iota
	kindBool           // truth
	kindNumber         // number, an integer
	kindIndex          // number, the index of a loop over the keys, from 1
	kindText           // operand: a constant string or an argument
	kindKey            // the name of a key
	kindStored         // the value that a key had before the script
	kindStart          // the first bytes of such a value: as many as argument arg says
	kindTextStart      // the first bytes of operand: as many as argument arg says
	kindArgument       // the number that argument arg is, plus number
	kindTTL            // the remaining time of a key, in seconds
	kindPTTL           // the remaining time of a key, in milliseconds
	kindSum            // a TTL plus the remaining time of a key
	kindStatus         // the table of a status reply: operand
	kindError          // the table of an error reply: operand
	kindList           // a table of values
	kindUnpacked       // the values of list, as the last arguments of a call
	kindKeys           // KEYS
	kindArgv           // ARGV
	kindBuiltin        // a function or table of Lua's library or of Redis, by its name in operand
	kindFunction       // a function of the script
)

// value is a symbolic value. The comments of kinds name the fields that they use.
type value struct {
	kind     kind
	truth    bool
	number   int64
	counted  bool // number depends on the number of keys
	operand  operand
	arg      int
	key      int // from 0
	ttl      expiry
	list     *list
	function *function
}

// operand is a constant string, or an argument if arg, which counts from 1, is not zero.
type operand struct {
	arg  int
	text string
}

// list is a table with consecutive integer keys. It has an identity, as in Lua.
type list struct {
	values []value
	perKey bool // value i belongs to key i
}

// expiry is a TTL: a constant, or an argument if arg is not zero.
type expiry struct {
	arg      int
	constant int64
	unit     time.Duration
}

func boolean(b bool) value { return value{kind: kindBool, truth: b} }

func number(n int64) value { return value{kind: kindNumber, number: n} }

func text(s string) value { return value{kind: kindText, operand: operand{text: s}} }

func argument(arg int) value { return value{kind: kindText, operand: operand{arg: arg}} }

func builtin(name string) value { return value{kind: kindBuiltin, operand: operand{text: name}} }

// count is a number that depends on the number of keys.
func count(n int) value { return value{kind: kindNumber, number: int64(n), counted: true} }

func (v value) truthy() bool { return v.kind != kindNil && (v.kind != kindBool || v.truth) }

// stringLike reports whether v is a string, in Lua's types.
func (v value) stringLike() bool {
	switch v.kind {
	case kindText, kindKey, kindStored, kindStart, kindTextStart:
		return true
	}
	return false
}

// numeric reports whether v is a number, in Lua's types.
func (v value) numeric() bool {
	switch v.kind {
	case kindNumber, kindIndex, kindArgument, kindTTL, kindPTTL, kindSum:
		return true
	}
	return false
}

// condition is a test of an argument whose result the script's evaluation depends on.
type condition struct {
	arg  int
	op   string // of Lua: == < <= > >=
	text string // what the argument is compared with
	// numeric conditions compare numbers, others strings.
	numeric bool
}

// holds evaluates the condition.
func (c condition) holds(argv [][]byte) (bool, error) {
	if !c.numeric {
		return string(argv[c.arg-1]) == c.text, nil
	}
	n, err := integer(argv, c.arg)
	if err != nil {
		return false, err
	}
	constant, err := strconv.ParseInt(c.text, 10, 64)
	return compareNumbers(c.op, n, constant), err
}

func compareNumbers(op string, a, b int64) bool {
	switch op {
	case "==":
		return a == b
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	default:
		return a >= b
	}
}

// mirrored are the operators with the operands swapped.
var mirrored = map[string]string{"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

// equal evaluates a == b.
func (r *run) equal(a, b value) bool {
	if a.kind > b.kind {
		a, b = b, a
	}
	switch {
	case a.numeric() && b.numeric():
		return r.compare("==", a, b)
	case a.stringLike() && b.stringLike():
		return r.equalStrings(a, b)
	case a.kind != b.kind:
		return false // of different types, or a constant and something that is never nil
	case a.kind == kindNil:
		return true
	case a.kind == kindBool:
		return a.truth == b.truth
	}
	r.refuse("it compares tables or functions")
	return false
}

// equalStrings evaluates a == b; a's kind is not the greater one.
func (r *run) equalStrings(a, b value) bool {
	switch {
	case a.kind == kindText && b.kind == kindText:
		return r.equalTexts(a.operand, b.operand)
	case a.kind == kindText && b.kind == kindStored:
		r.bindValue(a.operand)
		return r.keys[b.key].initial == own
	case a.kind == kindStart && b.kind == kindTextStart && a.arg == b.arg:
		r.bindValue(b.operand)
		r.bindPrefix(a.arg)
		initial := r.keys[a.key].initial
		return initial == own || initial == similar
	case a.kind == kindText && a.operand == operand{} && b.kind == kindTextStart:
		// What GETRANGE returns for an absent key. The prefix has at least one byte.
		r.bindValue(b.operand)
		r.bindPrefix(b.arg)
		return false
	}
	r.refuse("it compares strings other than a key's value with the caller's")
	return false
}

func (r *run) equalTexts(a, b operand) bool {
	switch {
	case a == b:
		return true
	case a.arg == 0 && b.arg == 0:
		return false
	case a.arg != 0 && b.arg != 0:
		r.refuse("it compares two arguments")
		return false
	}
	arg := max(a.arg, b.arg)
	return r.decide(condition{arg: arg, op: "==", text: a.text + b.text})
}

// compare evaluates a relation of two numbers.
func (r *run) compare(op string, a, b value) bool {
	if a.kind > b.kind {
		a, b, op = b, a, mirrored[op]
	}
	switch {
	case a.kind == kindNumber && b.kind == kindNumber:
		return r.compareCounts(op, a, b)
	case a.kind == kindNumber && a.counted:
		break
	case a.kind == kindNumber && b.kind == kindArgument && b.number == 0:
		return r.decide(condition{arg: b.arg, op: mirrored[op], text: strconv.FormatInt(a.number, 10), numeric: true})
	case a.kind == kindNumber && b.kind == kindPTTL && a.number <= 0:
		return compareNumbers(op, a.number, 1)
	case a.kind == kindNumber && b.kind == kindTTL && a.number < 0:
		return compareNumbers(op, a.number, 1) // a TTL below half a second is 0
	case a.kind == kindPTTL && b.kind == kindPTTL && a.key != b.key && op != "==":
		r.form.ranked = true
		return compareNumbers(op, int64(r.keys[a.key].rank), int64(r.keys[b.key].rank))
	}
	r.refuse("it compares numbers that are not known before the keys are")
	return false
}

// compareCounts compares constants and counts. Counts are compared only after a loop and only with each other or with
// zero, and never exceed the number of keys: then what happens with three keys happens with more, too.
func (r *run) compareCounts(op string, a, b value) bool {
	if a.counted || b.counted {
		constant := !a.counted && a.number != 0 || !b.counted && b.number != 0
		if constant || r.loops > 0 || a.number > int64(len(r.keys)) || b.number > int64(len(r.keys)) {
			r.refuse("it compares a count with something other than the number of keys or zero")
		}
	}
	return compareNumbers(op, a.number, b.number)
}

// text returns what a value is as an argument of a command.
func (r *run) text(v value) operand {
	switch {
	case v.kind == kindText:
		return v.operand
	case v.kind == kindNumber && !v.counted:
		return operand{text: strconv.FormatInt(v.number, 10)}
	}
	r.refuse("it passes a computed value to a command")
	return operand{}
}
