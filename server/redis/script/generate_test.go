package script_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// tokens matches the tokens of Lua that scripts of locks consist of.
var tokens = regexp.MustCompile(`--[^\n]*|"[^"\n]*"|'[^'\n]*'|[A-Za-z_][A-Za-z_0-9]*|[0-9]+|==|~=|<=|>=|[^\sA-Za-z0-9"']`)

// classes are tokens that can replace each other.
var classes = [][]string{
	strings.Fields(`"get" "set" "setnx" "setex" "psetex" "msetnx" "mset" "mget" "del" "unlink" "exists" "getrange"`),
	strings.Fields(`"expire" "pexpire" "ttl" "pttl" "get"`),
	strings.Fields(`"NX" "XX" "PX" "EX" "KEEPTTL" "GET" "OK" "" "0" "1" "v" "20000" "false"`),
	strings.Fields(`0 1 2 3 20000 30`), strings.Fields(`== ~= < > <= >=`), strings.Fields(`+ -`), strings.Fields(`and or`),
	strings.Fields(`true false nil`), strings.Fields(`call pcall`), strings.Fields(`ipairs pairs`),
	strings.Fields(`tonumber tostring`), strings.Fields(`KEYS ARGV`), strings.Fields(`status_reply error_reply`),
}

// mutate changes a few tokens of a source.
func mutate(rng *rand.Rand, source string) string {
	all := tokens.FindAllString(source, -1)
	all = slices.DeleteFunc(all, func(token string) bool { return strings.HasPrefix(token, "--") })
	for range 1 + rng.IntN(4) {
		i, j := rng.IntN(len(all)), rng.IntN(len(all))
		switch rng.IntN(20) {
		case 0:
			all = slices.Delete(all, i, i+1)
		case 1:
			all[i], all[j] = all[j], all[i]
		case 2:
			end := min(len(all), i+1+rng.IntN(8))
			all = slices.Insert(all, j, slices.Clone(all[i:end])...)
		default:
			all[i] = replacement(rng, all[i])
		}
		if len(all) == 0 {
			return ""
		}
	}
	return strings.Join(all, " ")
}

// replacement returns another token of the same class, or the token if it has none.
func replacement(rng *rand.Rand, token string) string {
	spelling := strings.ReplaceAll(token, "'", `"`)
	for _, i := range rng.Perm(len(classes)) {
		if slices.ContainsFunc(classes[i], func(other string) bool { return strings.EqualFold(other, spelling) }) {
			return classes[i][rng.IntN(len(classes[i]))]
		}
	}
	return token
}

// grammar composes scripts at random: many of them are locks. It writes %s for the key.
type grammar struct {
	*rand.Rand
	locals int
	counts bool // there is a counter
}

// compose returns a script.
func compose(rng *rand.Rand) string {
	g := &grammar{Rand: rng}
	if rng.IntN(2) == 0 {
		return g.lock()
	}
	if rng.IntN(3) > 0 {
		return named(g.block(0)+g.maybe("return "+g.result()), "KEYS[1]")
	}
	g.counts = true
	text := "local count = 0\n"
	for range 1 + rng.IntN(2) {
		text += "for i, key in ipairs(KEYS) do\n" + named(g.block(1), "key") + "end\n"
	}
	if rng.IntN(3) == 0 {
		text += "if " + g.pick("count", "#KEYS") + g.pick(" == ", " > ", " < ", " ~= ") + g.pick("0", "1", "2", "4", "#KEYS") +
			" then redis.call('del', unpack(KEYS)) end\n"
	}
	return text + "return " + g.pick("count", "#KEYS", "0", "1", "nil", "redis.status_reply('OK')")
}

// lock returns a script with the structure of a lock, or nearly so.
func (g *grammar) lock() string {
	own := g.pick("redis.call('get', %s) == ARGV[1]", "ARGV[1] == redis.call('get', %s)",
		"redis.call('getrange', %s, 0, ARGV[4] - 1) == string.sub(ARGV[1], 1, ARGV[4])")
	free := g.pick("redis.call('exists', %s) == 0", "not redis.call('get', %s)", "redis.call('get', %s) == false",
		"redis.call('pttl', %s) == -2", "redis.call('set', %s, ARGV[1], 'NX', 'PX', ARGV[2])")
	acquire := g.pick("redis.call('set', %s, ARGV[1], 'PX', ARGV[2])", "redis.call('psetex', %s, ARGV[2], ARGV[1])",
		"redis.call('setnx', %s, ARGV[1]) redis.call('pexpire', %s, ARGV[2])", g.change())
	change := g.pick(acquire, g.change(), "redis.call('pexpire', %s, ARGV[2])", "redis.call('del', %s)")
	if g.IntN(2) == 0 {
		return named(g.branches(own, free, change, acquire), "KEYS[1]")
	}
	guard := g.pick("not ("+own+")", free, "not ("+free+")", own)
	text := g.loop("if "+guard+" then return "+g.pick("0", "false", "count", "-1")+" end") + g.loop(g.pick(change, acquire))
	if g.IntN(4) == 0 {
		text = g.loop("if " + g.pick(own, free) + " then " + change + " count = count + 1 end")
	}
	return "local count = 0\n" + text + "return " + g.pick("#KEYS", "count", "1", "redis.status_reply('OK')")
}

// branches returns a script with one branch for the caller's key and one for a free key, or only one of them.
func (g *grammar) branches(own, free, change, acquire string) string {
	first := own + " then " + change + g.pick(" return "+g.result()+" ", " ")
	second := free + " then " + acquire + g.pick(" return "+g.result()+" ", " ")
	if g.IntN(2) == 0 {
		first, second = second, first
	}
	return "if " + first + g.pick("elseif "+second, "end if "+second, "") + " end return " + g.result()
}

// loop returns a loop over the keys. Some loops treat one key differently.
func (g *grammar) loop(body string) string {
	if g.IntN(8) == 0 {
		body = "if i " + g.pick("==", ">", "<") + g.pick(" 4", " #KEYS", " count") + " then return 0 end " + body
	}
	if g.IntN(2) == 0 {
		return "for i = 1, #KEYS do " + named(body, "KEYS[i]") + " end\n"
	}
	return "for i, key in ipairs(KEYS) do " + named(body, "key") + " end\n"
}

// named replaces %s with the expression for a key.
func named(text, key string) string { return strings.ReplaceAll(text, "%s", key) }

func (g *grammar) pick(all ...string) string { return all[g.IntN(len(all))] }

func (g *grammar) maybe(text string) string { return g.pick(text, "") }

// block returns some statements, each of which ends with a new line.
func (g *grammar) block(depth int) string {
	text := ""
	locals := g.locals
	for range 1 + g.IntN(2) {
		text += g.statement(depth) + "\n"
	}
	g.locals = locals // the names of a block end with it
	return text
}

func (g *grammar) statement(depth int) string {
	switch n := g.IntN(10); {
	case n < 4 && depth < 3:
		text := "if " + g.condition(depth) + " then\n" + g.block(depth+1)
		if g.IntN(4) == 0 {
			text += "elseif " + g.condition(depth) + " then\n" + g.block(depth+1)
		}
		if g.IntN(2) == 0 {
			text += "else\n" + g.block(depth+1)
		}
		return text + "end"
	case n < 5:
		text := fmt.Sprintf("local v%d = %s", g.locals, g.call())
		g.locals++
		return text
	case n < 6 && g.counts:
		return "count = count + " + g.pick("1", "1", "redis.call('del', %s)", "redis.call('exists', %s)")
	case n < 7 && depth > 0:
		return "do return " + g.result() + " end"
	}
	return g.change()
}

// change returns a call that changes the key.
func (g *grammar) change() string {
	return "redis." + g.pick("call", "pcall") + g.pick("('del', %s)", "('unlink', %s)", "('pexpire', %s, ARGV[2])",
		"('PEXPIRE', %s, ARGV[2])", "('expire', %s, ARGV[2])", "('set', %s, ARGV[1], 'PX', ARGV[2])",
		"('set', %s, ARGV[1], 'px', ARGV[2], 'nx')", "('set', %s, ARGV[1], 'XX', 'PX', tonumber(ARGV[2]))",
		"('psetex', %s, ARGV[2], ARGV[1])", "('setnx', %s, ARGV[1])", "('set', %s, ARGV[1])",
		"('pexpire', %s, ARGV[2] + redis.call('pttl', %s))")
}

// call returns a call with a result.
func (g *grammar) call() string {
	if g.IntN(3) == 0 {
		return g.change()
	}
	return "redis.call" + g.pick("('get', %s)", "('get', %s)", "('exists', %s)", "('pttl', %s)", "('ttl', %s)")
}

func (g *grammar) condition(depth int) string {
	switch g.IntN(14) {
	case 0:
		return "not " + g.call()
	case 1:
		return "redis.call('exists', %s) == " + g.pick("0", "1")
	case 2:
		return "(" + g.condition(depth+1) + ") " + g.pick("and", "or") + " (" + g.condition(depth+1) + ")"
	case 3:
		return g.change() + g.pick("", " == 1", " == 0", "")
	case 4:
		return "ARGV[3] == '0'"
	case 5:
		return "tonumber(ARGV[3]) " + g.pick("==", "~=", "<", ">") + " 1"
	case 6:
		return "redis.call('pttl', %s) " + g.pick("< 0", "== -2", "> 0", "== -1")
	case 7:
		return "redis.call('get', %s) " + g.pick("== false", "~= nil", "== 'locked'", "== ARGV[2]")
	case 9:
		if g.counts {
			return g.pick("i", "count", "#KEYS") + g.pick(" == ", " > ", " < ", " ~= ") + g.pick("0", "1", "2", "4", "#KEYS")
		}
	case 8:
		return "string.sub(ARGV[1], 1, ARGV[4]) == redis.call('getrange', %s, 0, ARGV[4] - 1)"
	}
	if g.locals > 0 && g.IntN(2) == 0 {
		return fmt.Sprintf("v%d %s ", g.IntN(g.locals), g.pick("==", "~=")) + g.pick("ARGV[1]", "false", "1", "0")
	}
	return g.pick("redis.call('get', %s) == ARGV[1]", "redis.call('get', %s) ~= ARGV[1]", "ARGV[1] == redis.call('get', %s)")
}

// result returns an expression to return.
func (g *grammar) result() string {
	if g.locals > 0 && g.IntN(4) == 0 {
		return fmt.Sprintf("v%d", g.IntN(g.locals))
	}
	return g.pick("0", "1", "-1", "nil", "false", "true", "'OK'", "redis.status_reply('OK')", "ARGV[1]", g.call(),
		"redis.call('get', %s) == ARGV[1] and 1 or 0", "{redis.call('get', %s), redis.call('pttl', %s)}",
		"{err = 'held'}", "{ok = 'fine'}", "redis.error_reply('"+g.pick("held", "ERR it is held")+"')")
}
