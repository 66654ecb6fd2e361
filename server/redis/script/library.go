package script

import "strings"

// functions are the functions of Redis and of Lua's library that scripts of locks call. All others are unknown.
var functions map[string]func(*run, []value) value

// libraries are the tables that contain them.
var libraries = map[string]bool{"redis": true, "string": true, "table": true}

func init() { // not a literal: the functions refer to the table
	functions = map[string]func(*run, []value) value{
		"redis.call":               (*run).call,
		"redis.pcall":              (*run).call,
		"redis.status_reply":       (*run).statusReply,
		"redis.error_reply":        (*run).errorReply,
		"redis.replicate_commands": func(*run, []value) value { return boolean(true) },
		"ipairs":                   (*run).iterate,
		"pairs":                    (*run).iterate,
		"string.sub":               (*run).sub,
		"table.insert":             (*run).insert,
		"tonumber":                 (*run).tonumber,
		"tostring":                 (*run).tostring,
		"unpack":                   (*run).unpack,
	}
}

// field returns the function of a library.
func (r *run) field(library, name value) value {
	full := library.operand.text + "." + name.operand.text
	if name.operand.arg != 0 || functions[full] == nil || strings.Contains(name.operand.text, ".") {
		return r.refuse("it uses %.80q", full)
	}
	return builtin(full)
}

// reply returns the table that stands for a status or an error reply.
func (r *run) reply(k kind, message value) value {
	if k != kindStatus && k != kindError || message.kind != kindText || message.operand.text == "" {
		return r.refuse("it makes a table that is not a reply with a constant text")
	}
	return value{kind: k, operand: message.operand}
}

func (r *run) statusReply(args []value) value {
	if len(args) != 1 {
		return r.refuse("it makes a status reply of %d values", len(args))
	}
	return r.reply(kindStatus, args[0])
}

func (r *run) errorReply(args []value) value {
	if len(args) != 1 {
		return r.refuse("it makes an error reply of %d values", len(args))
	}
	reply := r.reply(kindError, args[0])
	message := strings.TrimPrefix(reply.operand.text, "-")
	if !strings.Contains(message, " ") { // Redis 7 adds the code of an error
		message = "ERR " + message
	}
	reply.operand.text = message
	return reply
}

func (r *run) iterate([]value) value { return r.refuse("it calls ipairs elsewhere than in a loop") }

// sub evaluates string.sub(s, 1, n), with an argument n.
func (r *run) sub(args []value) value {
	if len(args) != 3 || args[0].kind != kindText || args[1] != number(1) {
		return r.refuse("it calls string.sub for something other than the start of a value")
	}
	end := r.toNumber(args[2])
	if end.kind != kindArgument || end.number != 0 {
		return r.refuse("it calls string.sub with a length that is not an argument")
	}
	return value{kind: kindTextStart, operand: args[0].operand, arg: end.arg}
}

func (r *run) insert(args []value) value {
	if len(args) != 2 || args[0].kind != kindList || !args[1].stringLike() {
		return r.refuse("it inserts something other than a string into a table")
	}
	args[0].list.values = append(args[0].list.values, args[1])
	return value{}
}

func (r *run) tonumber(args []value) value {
	if len(args) != 1 {
		return r.refuse("it calls tonumber with a base")
	}
	return r.toNumber(args[0])
}

func (r *run) tostring(args []value) value {
	switch {
	case len(args) != 1:
	case args[0].stringLike():
		return args[0]
	case args[0].kind == kindBool && args[0].truth:
		return text("true")
	case args[0].kind == kindBool:
		return text("false")
	case args[0].kind == kindNumber && !args[0].counted:
		return value{kind: kindText, operand: r.text(args[0])}
	}
	return r.refuse("it calls tostring for something other than a string or a constant")
}

func (r *run) unpack(args []value) value {
	switch {
	case len(args) != 1:
	case args[0].kind == kindKeys:
		r.useAllKeys()
		all := &list{}
		for i := range r.keys {
			all.values = append(all.values, value{kind: kindKey, key: i})
		}
		return value{kind: kindUnpacked, list: all}
	case args[0].kind == kindList:
		return value{kind: kindUnpacked, list: args[0].list}
	}
	return r.refuse("it unpacks something other than a table")
}
