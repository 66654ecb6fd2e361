package script

import (
	"strconv"
	"time"

	"github.com/yuin/gopher-lua/ast"
)

// expression evaluates an expression to one value. If the run is refused, the result means nothing.
func (r *run) expression(expr ast.Expr, s *scope) value {
	v := r.expand(expr, s)
	if v.kind == kindUnpacked {
		return r.refuse("it unpacks a table elsewhere than in the last argument of a call")
	}
	return v
}

// expand evaluates an expression, which may be a call of unpack.
func (r *run) expand(expr ast.Expr, s *scope) value {
	if !r.step() {
		return value{}
	}
	switch expr := expr.(type) {
	case *ast.NilExpr:
		return value{}
	case *ast.TrueExpr:
		return boolean(true)
	case *ast.FalseExpr:
		return boolean(false)
	case *ast.StringExpr:
		return text(expr.Value)
	case *ast.NumberExpr:
		return r.constant(expr.Value)
	case *ast.IdentExpr:
		return r.variable(expr.Value, s)
	case *ast.AttrGetExpr:
		return r.index(r.expression(expr.Object, s), r.expression(expr.Key, s))
	case *ast.TableExpr:
		return r.table(expr, s)
	case *ast.FunctionExpr:
		return value{kind: kindFunction, function: &function{expr, s}}
	case *ast.FuncCallExpr:
		return r.callExpression(expr, s)
	}
	return r.operator(expr, s)
}

func (r *run) operator(expr ast.Expr, s *scope) value {
	switch expr := expr.(type) {
	case *ast.LogicalOpExpr:
		left := r.expression(expr.Lhs, s)
		if left.truthy() == (expr.Operator == "or") {
			return left
		}
		return r.expression(expr.Rhs, s)
	case *ast.RelationalOpExpr:
		return r.relation(expr.Operator, r.expression(expr.Lhs, s), r.expression(expr.Rhs, s))
	case *ast.ArithmeticOpExpr:
		return r.arithmetic(expr.Operator, r.expression(expr.Lhs, s), r.expression(expr.Rhs, s))
	case *ast.UnaryNotOpExpr:
		return boolean(!r.expression(expr.Expr, s).truthy())
	case *ast.UnaryMinusOpExpr:
		if v := r.expression(expr.Expr, s); v.kind == kindNumber && !v.counted {
			return number(-v.number)
		}
	case *ast.UnaryLenOpExpr:
		return r.length(r.expression(expr.Expr, s))
	}
	return r.refuse("it has an expression other than those of locks")
}

// constant returns a number of the source.
func (r *run) constant(source string) value {
	if source == "0" {
		return number(0)
	}
	if n := decimal(source); n > 0 {
		return number(n)
	}
	return r.refuse("it contains the number %.40s", source)
}

// decimal returns a positive integer, or 0 if s is not one without sign and leading zeros.
func decimal(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 || n > maxInteger || strconv.FormatInt(n, 10) != s {
		return 0
	}
	return n
}

// variable returns the value of a local or global variable.
func (r *run) variable(name string, s *scope) value {
	if v := s.find(name); v != nil {
		return v.value
	}
	switch name {
	case "KEYS":
		return value{kind: kindKeys}
	case "ARGV":
		return value{kind: kindArgv}
	}
	if _, ok := functions[name]; ok || libraries[name] {
		return builtin(name)
	}
	return r.refuse("it uses the global variable %.40q", name)
}

// maxArgument is the highest number of an argument.
const maxArgument = 255

// index evaluates object[key].
func (r *run) index(object, key value) value {
	switch {
	case object.kind == kindBuiltin && key.kind == kindText:
		return r.field(object, key)
	case object.kind == kindStatus && key == text("ok"):
		return value{kind: kindText, operand: object.operand}
	case object.kind == kindArgv && key.kind == kindNumber && !key.counted && key.number > 0 && key.number <= maxArgument:
		r.use(int(key.number))
		return argument(int(key.number))
	case object.kind == kindKeys && key == number(1):
		r.useKey()
		return value{kind: kindKey}
	case object.kind == kindKeys && key.kind == kindIndex:
		return value{kind: kindKey, key: int(key.number - 1)}
	case object.kind == kindList && key.kind == kindIndex && object.list.perKey:
		return object.list.values[key.number-1]
	}
	return r.refuse("it has an index other than those of locks")
}

// length evaluates the operator #.
func (r *run) length(v value) value {
	switch v.kind {
	case kindKeys:
		r.useAllKeys()
		return count(len(r.keys))
	case kindList:
		return count(len(v.list.values))
	}
	return r.refuse("it takes the length of something other than KEYS")
}

// replyTables are the fields of tables that stand for replies.
var replyTables = map[value]kind{text("ok"): kindStatus, text("err"): kindError}

// table evaluates a table constructor: a list, or a reply.
func (r *run) table(expr *ast.TableExpr, s *scope) value {
	all := &list{}
	for _, field := range expr.Fields {
		v := r.expression(field.Value, s)
		switch {
		case field.Key == nil && v.kind != kindNil:
			all.values = append(all.values, v)
		case field.Key != nil && len(expr.Fields) == 1:
			return r.reply(replyTables[r.expression(field.Key, s)], v)
		default:
			return r.refuse("it makes a table")
		}
	}
	return value{kind: kindList, list: all}
}

func (r *run) relation(op string, a, b value) value {
	switch op {
	case "==":
		return boolean(r.equal(a, b))
	case "~=":
		return boolean(!r.equal(a, b))
	}
	if !a.numeric() || !b.numeric() {
		return r.refuse("it orders things that are not numbers")
	}
	return boolean(r.compare(op, a, b))
}

// arithmetic evaluates what locks compute: counts, a prefix's last byte, and a longer TTL.
func (r *run) arithmetic(op string, a, b value) value {
	one := b == number(0) || b == number(1)
	switch {
	case op == "+" && r.loops > 0 && one && (a == number(0) || a.kind == kindNumber && a.counted):
		return count(int(a.number + b.number))
	case op == "-" && b == number(1):
		if v := r.toNumber(a); v.kind == kindArgument && v.number == 0 {
			v.number = -1
			return v
		}
	case op == "+" && (a.kind == kindPTTL || b.kind == kindPTTL):
		if b.kind == kindPTTL {
			a, b = b, a
		}
		if ttl := r.toNumber(b); ttl.kind == kindArgument && ttl.number == 0 {
			return value{kind: kindSum, key: a.key, ttl: expiry{arg: ttl.arg, unit: time.Millisecond}}
		}
	}
	return r.refuse("it computes something other than those of locks")
}

// toNumber evaluates tonumber, and how Lua converts the operands of arithmetic.
func (r *run) toNumber(v value) value {
	switch {
	case v.numeric():
		return v
	case v.kind == kindText && v.operand.arg != 0:
		r.bindInteger(v.operand.arg)
		return value{kind: kindArgument, arg: v.operand.arg}
	}
	return r.refuse("it converts something other than an argument to a number")
}

// callExpression evaluates a call.
func (r *run) callExpression(expr *ast.FuncCallExpr, s *scope) value {
	if expr.Func == nil {
		return r.refuse("it calls a method")
	}
	callee := r.expression(expr.Func, s)
	args := r.arguments(expr.Args, s)
	switch {
	case r.err != nil:
		return value{}
	case callee.kind == kindFunction:
		return r.callFunction(callee.function, args)
	case callee.kind == kindBuiltin && functions[callee.operand.text] != nil:
		return functions[callee.operand.text](r, args)
	}
	return r.refuse("it calls something that is not a function")
}

// arguments evaluates the arguments of a call. Only the last one may be unpack, which makes several of one.
func (r *run) arguments(exprs []ast.Expr, s *scope) []value {
	args := make([]value, 0, len(exprs))
	for i, expr := range exprs {
		v := r.expand(expr, s)
		if v.kind != kindUnpacked {
			args = append(args, v)
			continue
		}
		if i != len(exprs)-1 || r.loops > 0 || expr.(*ast.FuncCallExpr).AdjustRet {
			r.refuse("it unpacks a table elsewhere than in the last argument of a call, or within a loop")
			return nil
		}
		args = append(args, v.list.values...)
	}
	return args
}

func (r *run) callFunction(f *function, args []value) value {
	if r.calls == maxCalls || f.expr.ParList.HasVargs {
		return r.refuse("its functions call each other, or have a variable number of arguments")
	}
	s := &scope{outer: f.scope}
	for i, name := range f.expr.ParList.Names {
		v := value{}
		if i < len(args) {
			v = args[i]
		}
		r.declare(s, name, v)
	}
	r.calls++
	defer func() { r.calls-- }()
	if !r.block(f.expr.Stmts, s) {
		return value{}
	}
	result := r.result
	r.result = value{}
	return result
}
