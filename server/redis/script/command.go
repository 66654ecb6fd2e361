package script

import (
	"slices"
	"strings"
	"time"
)

// command is a command of Redis: what it does to the keys, and what it returns to the script.
type command struct {
	least, most int // the number of arguments
	run         func(*run, []value) value
}

// commands are those that locks use.
var commands map[string]command

func init() { // not a literal: the functions refer to the table
	const any = 4*maxKeys + 1
	commands = map[string]command{
		"GET":      {1, 1, (*run).get},
		"MGET":     {1, any, (*run).mget},
		"GETRANGE": {3, 3, (*run).getrange},
		"EXISTS":   {1, any, (*run).exists},
		"SET":      {2, 5, (*run).set},
		"SETNX":    {2, 2, (*run).setnx},
		"SETEX":    {3, 3, func(r *run, args []value) value { return r.setex(args, time.Second) }},
		"PSETEX":   {3, 3, func(r *run, args []value) value { return r.setex(args, time.Millisecond) }},
		"MSET":     {2, any, (*run).mset},
		"MSETNX":   {2, any, (*run).msetnx},
		"EXPIRE":   {2, 2, func(r *run, args []value) value { return r.expire(args, time.Second) }},
		"PEXPIRE":  {2, 2, func(r *run, args []value) value { return r.expire(args, time.Millisecond) }},
		"TTL":      {1, 1, func(r *run, args []value) value { return r.remaining(args, kindTTL) }},
		"PTTL":     {1, 1, func(r *run, args []value) value { return r.remaining(args, kindPTTL) }},
		"DEL":      {1, any, (*run).del},
		"UNLINK":   {1, any, (*run).del},
	}
}

// call evaluates redis.call. As no command can fail with the arguments that Bind accepts, redis.pcall is the same.
func (r *run) call(args []value) value {
	if len(args) == 0 || args[0].kind != kindText || args[0].operand.arg != 0 {
		return r.refuse("it calls a command whose name is computed")
	}
	name := strings.ToUpper(args[0].operand.text)
	command, ok := commands[name]
	args = args[1:]
	if !ok {
		return r.refuse("it calls %.40q", name)
	}
	if len(args) < command.least || len(args) > command.most {
		return r.refuse("it calls %s with %d arguments", name, len(args))
	}
	return command.run(r, args)
}

// key returns the key that a value names. The result is valid also if the run is refused.
func (r *run) key(v value) *key {
	if v.kind != kindKey {
		r.refuse("it uses a key that is not in KEYS")
		return &key{}
	}
	return &r.keys[v.key]
}

func (r *run) get(args []value) value {
	switch r.key(args[0]).content {
	case contentFirst:
		return value{kind: kindStored, key: args[0].key}
	case contentValue:
		return value{kind: kindText, operand: *r.form.value}
	}
	return boolean(false)
}

func (r *run) mget(args []value) value {
	all := &list{perKey: len(args) == len(r.keys)}
	for i, name := range args {
		all.values = append(all.values, r.get(args[i:]))
		all.perKey = all.perKey && name.kind == kindKey && name.key == i
	}
	return value{kind: kindList, list: all}
}

// getrange returns the first bytes of a value, as many as an argument says.
func (r *run) getrange(args []value) value {
	k := r.key(args[0])
	start, end := r.text(args[1]), args[2]
	prefix := start == operand{text: "0"} && end.kind == kindArgument && end.number == -1
	if !prefix || k.content == contentValue {
		return r.refuse("it calls GETRANGE for something other than the start of a key's first value")
	}
	if !k.exists() {
		return text("")
	}
	return value{kind: kindStart, key: args[0].key, arg: end.arg}
}

func (r *run) exists(args []value) value {
	n := 0
	for _, name := range args {
		if r.key(name).exists() {
			n++
		}
	}
	return r.total(n)
}

// total is a number of keys that a command returns. Within a loop, a command has a fixed number of keys.
func (r *run) total(n int) value {
	v := number(int64(n))
	v.counted = r.form.many && r.loops == 0
	return v
}

func (r *run) set(args []value) value {
	k, v, nx, xx := r.key(args[0]), r.text(args[1]), false, false
	ttl := expiry{}
	for rest := args[2:]; len(rest) > 0; rest = rest[1:] {
		option := strings.ToUpper(r.text(rest[0]).text)
		unit := map[string]time.Duration{"EX": time.Second, "PX": time.Millisecond}[option]
		switch {
		case option == "NX" && !nx && !xx:
			nx = true
		case option == "XX" && !nx && !xx:
			xx = true
		case unit != 0 && ttl.unit == 0 && len(rest) > 1:
			ttl = r.expiry(rest[1], unit)
			rest = rest[1:]
		default:
			return r.refuse("it calls SET with an unknown option")
		}
	}
	if nx && k.exists() || xx && !k.exists() {
		r.bindValue(v)
		return boolean(false)
	}
	r.write(k, v, ttl)
	return status("OK")
}

func status(s string) value { return value{kind: kindStatus, operand: operand{text: s}} }

// write sets a key to a value, which must be the caller's. A TTL without unit is none.
func (r *run) write(k *key, v operand, ttl expiry) {
	r.bindValue(v)
	k.write()
	if ttl.unit != 0 {
		k.expire(deadlineSet, ttl)
	}
}

func (r *run) setnx(args []value) value {
	k, v := r.key(args[0]), r.text(args[1])
	if k.exists() {
		r.bindValue(v)
		return number(0)
	}
	r.write(k, v, expiry{})
	return number(1)
}

func (r *run) setex(args []value, unit time.Duration) value {
	r.write(r.key(args[0]), r.text(args[2]), r.expiry(args[1], unit))
	return status("OK")
}

func (r *run) mset(args []value) value {
	names, values := r.pairs(args)
	for i, k := range names {
		r.write(k, values[i], expiry{})
	}
	return status("OK")
}

func (r *run) msetnx(args []value) value {
	names, values := r.pairs(args)
	if slices.ContainsFunc(names, (*key).exists) {
		return number(0)
	}
	for i, k := range names {
		r.write(k, values[i], expiry{})
	}
	return number(1)
}

// pairs returns the keys and the values of MSET. The values must be the caller's.
func (r *run) pairs(args []value) (names []*key, values []operand) {
	if len(args)%2 != 0 {
		r.refuse("it calls MSET or MSETNX with an odd number of arguments")
		return nil, nil
	}
	for ; len(args) > 0; args = args[2:] {
		v := r.text(args[1])
		r.bindValue(v)
		names, values = append(names, r.key(args[0])), append(values, v)
	}
	return names, values
}

func (r *run) expire(args []value, unit time.Duration) value {
	k, ttl, d := r.key(args[0]), args[1], deadlineSet
	if ttl.kind == kindSum {
		if ttl.key != args[0].key || unit != time.Millisecond || k.deadline != deadlineFirst {
			return r.refuse("it sets a TTL from another one")
		}
		d = deadlineAdded
	}
	e := r.expiry(ttl, unit)
	if !k.exists() {
		return number(0)
	}
	k.expire(d, e)
	return number(1)
}

// expiry returns the TTL that a value is. All TTLs of a script must be the same.
func (r *run) expiry(v value, unit time.Duration) expiry {
	e := expiry{unit: unit}
	switch {
	case v.kind == kindSum:
		e = v.ttl
	case v.kind == kindText && v.operand.arg != 0:
		e.arg = v.operand.arg
	case v.kind == kindArgument && v.number == 0:
		e.arg = v.arg
	case v.kind == kindNumber && !v.counted:
		e.constant = v.number
	case v.kind == kindText:
		e.constant = decimal(v.operand.text)
	}
	if e.arg == 0 && e.constant <= 0 {
		r.refuse("it sets a TTL that is neither a positive constant nor an argument")
	}
	r.bindTTL(e)
	return e
}

func (r *run) remaining(args []value, unit kind) value {
	k := r.key(args[0])
	switch {
	case !k.exists():
		return number(-2)
	case k.deadline == deadlineNone:
		return number(-1)
	case k.deadline != deadlineFirst:
		return r.refuse("it reads a TTL that it has set")
	}
	return value{kind: unit, key: args[0].key}
}

func (r *run) del(args []value) value {
	n := 0
	for _, name := range args {
		if k := r.key(name); k.exists() {
			k.remove()
			n++
		}
	}
	return r.total(n)
}
