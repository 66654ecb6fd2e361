package script

import (
	"errors"
	"fmt"
	"slices"

	"github.com/yuin/gopher-lua/ast"
)

// Limits of the work for a script. The steps are those of all evaluations together.
const (
	maxSteps = 100_000
	maxForms = 8
	// sampleKeys is the most keys that a script with any number of keys is evaluated with.
	sampleKeys = 3
)

// form is the canonical form of a script for those arguments that pass some tests.
type form struct {
	tests    []test
	err      error // why the script is unknown for these arguments
	fixed    bool  // uses the first key
	many     bool  // uses all keys
	ranked   bool  // remaining times are compared, so their order matters
	value    *operand
	prefix   int // the argument that says how many bytes of the value are compared; 0 is none
	ttl      *expiry
	integers []int // arguments that must be integers
	action   Action
	replies  map[Outcome]Reply
}

// test is a condition and the result for which a form was made.
type test struct {
	condition condition
	result    bool
}

// recognise makes the forms of a script.
func recognise(chunk []ast.Stmt) (*Script, error) {
	e := &evaluation{chunk: chunk}
	e.explore(nil)
	known := func(f form) bool { return f.err == nil }
	if !slices.ContainsFunc(e.script.forms, known) {
		return nil, e.script.forms[0].err
	}
	return &e.script, nil
}

// evaluation evaluates one script in all states and for all results of its tests.
type evaluation struct {
	chunk  []ast.Stmt
	script Script
	steps  int
}

// explore adds the forms for arguments that pass the tests.
func (e *evaluation) explore(tests []test) {
	f := form{tests: tests}
	var runs []*run
	runs, f.err = e.runs(&f)
	undecided := &undecidedError{}
	if errors.As(f.err, &undecided) {
		if len(tests) < maxForms/2 && len(e.script.forms) < maxForms {
			for _, result := range []bool{true, false} {
				e.explore(append(slices.Clone(tests), test{undecided.condition, result}))
			}
			return
		}
		f.err = unknown("it tests too many arguments")
	}
	if f.err == nil {
		f.err = f.classify(runs)
	}
	e.script.forms = append(e.script.forms, f)
}

// undecidedError stops an evaluation at a test of an argument that no form was made for yet.
type undecidedError struct{ condition condition }

func (*undecidedError) Error() string { return "undecided" }

// runs evaluates the script in all states of its keys.
func (e *evaluation) runs(f *form) ([]*run, error) {
	var all []*run
	for n := 1; n == 1 || f.many && n <= sampleKeys; n++ {
		ranked := f.ranked
		for _, keys := range samples(n, ranked) {
			r := &run{evaluation: e, form: f, keys: keys}
			if err := r.evaluate(); err != nil {
				return nil, err
			}
			all = append(all, r)
		}
		if f.ranked != ranked {
			n-- // again, in all orders
		}
	}
	return all, nil
}

// samples returns n keys in all combinations of states. If they are ranked, it returns each combination with the
// remaining times in all orders.
func samples(n int, ranked bool) [][]key {
	orders := [][]int{{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	if !ranked {
		orders = orders[:1]
	}
	all := [][]key{nil}
	for range n {
		var longer [][]key
		for _, keys := range all {
			for _, s := range states {
				longer = append(longer, append(slices.Clone(keys), newKey(s, 0)))
			}
		}
		all = longer
	}
	var ordered [][]key
	for _, keys := range all {
		for _, order := range orders {
			keys = slices.Clone(keys)
			for i := range keys {
				keys[i].rank = order[i]
			}
			ordered = append(ordered, keys)
		}
	}
	return ordered
}

// matches reports whether the arguments pass the tests of the form.
func (f *form) matches(argv [][]byte) (bool, error) {
	for _, t := range f.tests {
		holds, err := t.condition.holds(argv)
		if err != nil || holds != t.result {
			return false, err
		}
	}
	return true, nil
}

// decide returns the result of a condition for which the form is made.
func (r *run) decide(c condition) bool {
	r.use(c.arg)
	for _, t := range r.form.tests {
		if t.condition == c {
			return t.result
		}
	}
	if r.err == nil {
		r.err = &undecidedError{c}
	}
	return false
}

// bindValue makes an operand the caller's value. A script has one.
func (r *run) bindValue(v operand) {
	if r.form.value == nil {
		r.form.value = &v
	}
	if *r.form.value != v {
		r.refuse("it has two values for a key")
	}
}

// bindPrefix makes an argument the length of the compared bytes.
func (r *run) bindPrefix(arg int) {
	if r.form.prefix != 0 && r.form.prefix != arg {
		r.refuse("it compares prefixes of different lengths")
	}
	r.form.prefix = arg
}

func (r *run) bindTTL(e expiry) {
	if r.form.ttl == nil {
		r.form.ttl = &e
	}
	if *r.form.ttl != e {
		r.refuse("it has two TTLs")
	}
}

// bindInteger requires an argument to be an integer.
func (r *run) bindInteger(arg int) {
	if !slices.Contains(r.form.integers, arg) {
		r.form.integers = append(r.form.integers, arg)
	}
}

// use notes that the script needs an argument.
func (r *run) use(arg int) { r.evaluation.script.argv = max(r.evaluation.script.argv, arg) }

// refuse makes the script unknown. The first reason counts. It returns nil, for callers that return a value.
func (r *run) refuse(format string, args ...any) value {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrUnknown, fmt.Sprintf(format, args...))
	}
	return value{}
}
