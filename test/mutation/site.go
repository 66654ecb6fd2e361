package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// kind is a way to change a place.
type kind string

const (
	negate   kind = "negated"
	leaveOut kind = "operand left out"
	boundary kind = "limit moved"
	noError  kind = "error becomes nil"
	noAssign kind = "assignment left out"
)

// site is a place that can be changed. Its text is bytes [from, to) of the file. op is the offset of a
// comparison's operator.
type site struct {
	file     string
	line     int
	function string
	kind     kind
	from, to int
	op       int
	// operator is that of the comparison whose limit moves, or of the expression that loses an operand.
	operator token.Token
	text     string
}

// finder collects the sites of a file.
type finder struct {
	fset     *token.FileSet
	info     *types.Info
	name     string
	source   []byte
	function string
	results  *types.Tuple // of the innermost function
	sites    []site
}

// find returns the sites of a file, ordered by position.
func find(fset *token.FileSet, info *types.Info, name string, source []byte, file *ast.File) []site {
	f := &finder{fset: fset, info: info, name: name, source: source}
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
			f.function = functionName(fn)
			f.body(info.Defs[fn.Name].Type().(*types.Signature).Results(), fn.Body)
		}
	}
	return f.sites
}

func functionName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	of := fn.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// body visits a function. Function literals inside it have their own results.
func (f *finder) body(results *types.Tuple, body *ast.BlockStmt) {
	outer := f.results
	f.results = results
	ast.Inspect(body, f.visit)
	f.results = outer
}

func (f *finder) visit(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.FuncLit:
		f.body(f.info.TypeOf(n).(*types.Signature).Results(), n.Body)
		return false
	case *ast.IfStmt:
		f.condition(n.Cond)
	case *ast.ForStmt:
		f.condition(n.Cond)
	case *ast.SwitchStmt:
		f.cases(n)
	case *ast.BinaryExpr:
		f.comparison(n)
	case *ast.ReturnStmt:
		f.returned(n)
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	}
	return true
}

// cases adds the cases of a switch without a tag, which are conditions.
func (f *finder) cases(n *ast.SwitchStmt) {
	if n.Tag != nil {
		return
	}
	for _, clause := range n.Body.List {
		for _, expr := range clause.(*ast.CaseClause).List {
			f.condition(expr)
		}
	}
}

// condition adds a condition that is not a comparison. Comparisons are found separately, wherever they are.
func (f *finder) condition(expr ast.Expr) {
	switch e := expr.(type) {
	case nil:
	case *ast.ParenExpr:
		f.condition(e.X)
	case *ast.BinaryExpr:
		// Its operands are found by comparison.
	default:
		f.add(expr, negate, site{})
	}
}

// comparison adds a comparison, or the operands of && and ||.
func (f *finder) comparison(n *ast.BinaryExpr) {
	switch n.Op {
	case token.LAND, token.LOR:
		for _, operand := range []ast.Expr{n.X, n.Y} {
			f.condition(operand)
			f.add(operand, leaveOut, site{operator: n.Op})
		}
	case token.EQL, token.NEQ:
		f.add(n, negate, site{})
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		f.add(n, negate, site{})
		if f.ordered(n.X) && types.Identical(f.info.TypeOf(n.X), f.info.TypeOf(n.Y)) {
			f.add(n, boundary, site{operator: n.Op, op: f.offset(n.OpPos)})
		}
	}
}

func (f *finder) ordered(expr ast.Expr) bool {
	basic, ok := f.info.TypeOf(expr).Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsInteger != 0
}

// returned adds the error at the end of a return statement.
func (f *finder) returned(n *ast.ReturnStmt) {
	if f.results.Len() == 0 || len(n.Results) != f.results.Len() {
		return
	}
	last := f.results.At(f.results.Len() - 1).Type()
	expr := n.Results[len(n.Results)-1]
	if !types.Identical(last, types.Universe.Lookup("error").Type()) || f.info.Types[expr].IsNil() {
		return
	}
	f.add(expr, noError, site{})
}

// statements adds the statements that change state beyond the function's own variables.
func (f *finder) statements(list []ast.Stmt) {
	for _, stmt := range list {
		switch s := stmt.(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE && !slices.ContainsFunc(s.Lhs, f.local) {
				f.add(s, noAssign, site{})
			}
		case *ast.IncDecStmt:
			if !f.local(s.X) {
				f.add(s, noAssign, site{})
			}
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && f.deletes(call) {
				f.add(s, noAssign, site{})
			}
		}
	}
}

// local reports whether expr is a variable: not a field or an element, and not behind a pointer.
func (f *finder) local(expr ast.Expr) bool {
	_, ok := ast.Unparen(expr).(*ast.Ident)
	return ok
}

func (f *finder) deletes(call *ast.CallExpr) bool {
	name, ok := call.Fun.(*ast.Ident)
	if !ok {
		return false
	}
	builtin, ok := f.info.Uses[name].(*types.Builtin)
	return ok && (builtin.Name() == "delete" || builtin.Name() == "clear")
}

// add adds a site, if its expression can be replaced by another value.
func (f *finder) add(node ast.Node, k kind, s site) {
	if expr, ok := node.(ast.Expr); ok && k != noError {
		have := f.info.Types[expr]
		if have.Value != nil || have.Type != types.Typ[types.Bool] && have.Type != types.Typ[types.UntypedBool] {
			return
		}
	}
	s.file, s.function, s.kind = f.name, f.function, k
	s.line = f.fset.Position(node.Pos()).Line
	s.from, s.to = f.offset(node.Pos()), f.offset(node.End())
	s.text = string(f.source[s.from:s.to])
	f.sites = append(f.sites, s)
}

func (f *finder) offset(pos token.Pos) int { return f.fset.Position(pos).Offset }
