package script

import (
	"slices"

	"github.com/yuin/gopher-lua/ast"
)

// run evaluates a script once, with keys in certain states.
type run struct {
	evaluation *evaluation
	form       *form
	keys       []key
	loops      int       // how many loops surround what is evaluated: at most one
	calls      int       // how many functions surround it
	shortest   *variable // the outer variable that a loop has assigned remaining times to
	result     value     // what the script, or a function of it, returns
	err        error
}

// maxCalls bounds the nesting of calls, of which recursion is a case.
const maxCalls = 5

// scope is a block's variables.
type scope struct {
	outer *scope
	names map[string]*variable
}

// variable is a local variable.
type variable struct {
	value value
	loops int // how many loops surround its declaration
}

// function is a function of the script, with the variables around it.
type function struct {
	expr  *ast.FunctionExpr
	scope *scope
}

func (s *scope) find(name string) *variable {
	for ; s != nil; s = s.outer {
		if v, ok := s.names[name]; ok {
			return v
		}
	}
	return nil
}

func (r *run) declare(s *scope, name string, v value) {
	if s.names == nil {
		s.names = map[string]*variable{}
	}
	s.names[name] = &variable{value: v, loops: r.loops}
}

// evaluate runs the script.
func (r *run) evaluate() error {
	r.block(r.evaluation.chunk, nil)
	return r.err
}

// step counts a step, and reports whether the evaluation goes on.
func (r *run) step() bool {
	if r.evaluation.steps++; r.evaluation.steps > maxSteps {
		r.refuse("it is too long")
	}
	return r.err == nil
}

// block evaluates statements. It reports whether one of them returned.
func (r *run) block(stmts []ast.Stmt, outer *scope) bool {
	s := &scope{outer: outer}
	for _, stmt := range stmts {
		if returned := r.statement(stmt, s); returned || !r.step() {
			return returned
		}
	}
	return false
}

func (r *run) statement(stmt ast.Stmt, s *scope) (returned bool) {
	switch stmt := stmt.(type) {
	case *ast.LocalAssignStmt:
		r.local(stmt, s)
	case *ast.AssignStmt:
		r.assign(stmt, s)
	case *ast.FuncCallStmt:
		r.expression(stmt.Expr, s)
	case *ast.DoBlockStmt:
		return r.block(stmt.Stmts, s)
	case *ast.IfStmt:
		if condition := r.expression(stmt.Condition, s); r.err != nil {
			return false
		} else if condition.truthy() {
			return r.block(stmt.Then, s)
		}
		return r.block(stmt.Else, s)
	case *ast.ReturnStmt:
		return r.returns(stmt, s)
	case *ast.GenericForStmt:
		return r.loopIn(stmt, s)
	case *ast.NumberForStmt:
		return r.loopTo(stmt, s)
	default:
		r.refuse("it has a loop other than over KEYS, or a global function")
	}
	return false
}

func (r *run) returns(stmt *ast.ReturnStmt, s *scope) bool {
	r.result = value{}
	switch len(stmt.Exprs) {
	case 0:
	case 1:
		r.result = r.expression(stmt.Exprs[0], s)
	default:
		r.refuse("it returns several values")
	}
	return true
}

func (r *run) local(stmt *ast.LocalAssignStmt, s *scope) {
	if len(stmt.Exprs) != len(stmt.Names) && len(stmt.Exprs) != 0 {
		r.refuse("it assigns %d values to %d variables", len(stmt.Exprs), len(stmt.Names))
		return
	}
	values := make([]value, len(stmt.Names))
	for i, expr := range stmt.Exprs {
		values[i] = r.expression(expr, s)
	}
	for i, name := range stmt.Names {
		r.declare(s, name, values[i])
	}
}

func (r *run) assign(stmt *ast.AssignStmt, s *scope) {
	if len(stmt.Lhs) != 1 || len(stmt.Rhs) != 1 {
		r.refuse("it assigns several values")
		return
	}
	name, ok := stmt.Lhs[0].(*ast.IdentExpr)
	if !ok {
		r.refuse("it assigns to a field")
		return
	}
	target := s.find(name.Value)
	if target == nil {
		r.refuse("it assigns to the global variable %.40q", name.Value)
		return
	}
	v := r.expression(stmt.Rhs[0], s)
	if target.loops < r.loops && !counts(name.Value, stmt.Rhs[0]) && !r.takesShortest(target, v) {
		r.refuse("a loop assigns to the outer variable %.40q, and does not count", name.Value)
	}
	target.value = v
}

// counts reports whether an assignment of expr to the variable is of the form n = n + x.
func counts(name string, expr ast.Expr) bool {
	sum, ok := expr.(*ast.ArithmeticOpExpr)
	if !ok || sum.Operator != "+" {
		return false
	}
	ident, ok := sum.Lhs.(*ast.IdentExpr)
	return ok && ident.Value == name
}

// takesShortest reports whether a loop may assign v to an outer variable, as it is a remaining time. One variable per
// script may be used so.
func (r *run) takesShortest(target *variable, v value) bool {
	if v.kind != kindPTTL || r.shortest != nil && r.shortest != target {
		return false
	}
	r.shortest = target
	return true
}

// loopIn evaluates: for i, key in ipairs(KEYS) do.
func (r *run) loopIn(stmt *ast.GenericForStmt, s *scope) bool {
	call, ok := stmt.Exprs[0].(*ast.FuncCallExpr)
	if len(stmt.Exprs) != 1 || !ok || call.Func == nil || len(call.Args) != 1 || len(stmt.Names) > 2 {
		r.refuse("it has a loop other than over KEYS")
		return false
	}
	name, over := r.expression(call.Func, s), r.expression(call.Args[0], s)
	if name != builtin("ipairs") && name != builtin("pairs") || over.kind != kindKeys {
		r.refuse("it has a loop other than over KEYS")
		return false
	}
	return r.loop(stmt.Names, stmt.Stmts, s)
}

// loopTo evaluates: for i = 1, #KEYS do.
func (r *run) loopTo(stmt *ast.NumberForStmt, s *scope) bool {
	first, last, step := r.expression(stmt.Init, s), r.expression(stmt.Limit, s), number(1)
	if stmt.Step != nil {
		step = r.expression(stmt.Step, s)
	}
	if first != number(1) || step != number(1) || last != count(len(r.keys)) {
		r.refuse("it has a loop other than over KEYS")
		return false
	}
	return r.loop([]string{stmt.Name}, stmt.Stmts, s)
}

// loop evaluates statements for each key, with its index and name as the first one or two variables.
func (r *run) loop(names []string, stmts []ast.Stmt, outer *scope) (returned bool) {
	r.useAllKeys()
	if r.loops > 0 {
		r.refuse("it has a loop in a loop")
	}
	r.loops++
	defer func() { r.loops-- }()
	before := slices.Clone(r.keys)
	for i := range r.keys {
		s := &scope{outer: outer}
		variables := []value{{kind: kindIndex, number: int64(i + 1)}, {kind: kindKey, key: i}}
		for j, name := range names {
			r.declare(s, name, variables[j])
		}
		if returned := r.block(stmts, s); returned || r.err != nil {
			if r.calls > 0 && !slices.Equal(before, r.keys) {
				// Called four times, the function could change the first four keys.
				r.refuse("a function changes keys in a loop and returns")
			}
			return returned
		}
	}
	return false
}

// useAllKeys notes that the script works with any number of keys.
func (r *run) useAllKeys() {
	r.form.many = true
	r.checkKeys()
}

// useKey notes that the script uses a key by its number.
func (r *run) useKey() {
	r.form.fixed = true
	r.checkKeys()
}

func (r *run) checkKeys() {
	if r.form.fixed && r.form.many {
		r.refuse("it uses both one key and all keys")
	}
}
