// Package script recognises the Lua scripts of lock libraries. It has no Lua machine: a script becomes one typed
// operation of the state machine, or it is refused.
//
// A script is parsed, and then evaluated symbolically, without keys and arguments, once for each state that a key can
// be in: absent, holding the caller's value, or holding another value. What the evaluation records is the canonical
// form of the script: for each state, how the key changes and what the script replies. All spellings of an operation
// have the same form, whatever their names, comments, white space, letter case, order of branches and choice of
// commands. A table (meanings) lists the form of each operation; a script whose form is not in it is unknown.
//
// A script that tests an argument has one form for each result of the test; [Script.Bind] selects one by the actual
// arguments. A script that loops over its keys is evaluated with one, two and three keys, in all combinations of their
// states. The evaluator refuses what could make a difference only with more keys: a loop may not compare what it
// counts, may assign to an outer variable only by counting or by taking a remaining time, and may not contain a loop. A
// function may not change some keys in a loop and return.
//
// The evaluator knows the part of Lua and of Redis' commands that locks use. It refuses everything else, including all
// that depends on time, on chance, on other keys, or on keys without a TTL. A key in its last millisecond, whose PTTL
// is 0, is considered as having a positive remaining time. Empty statements, which Lua 5.1 rejects, are accepted.
//
// The files:
//
//   - script.go: the API: Recognise and Bind
//   - syntax.go: parsing, and the limits of size and depth
//   - value.go: symbolic values and their comparison
//   - key.go, command.go: the state of a key, and the commands that change it
//   - evaluate.go, expression.go, library.go: statements, expressions and the functions of Lua's library
//   - form.go: the canonical form: evaluates a script in all states
//   - meaning.go, reply.go: the table of operations, and their replies
package script
