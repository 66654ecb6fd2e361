package script

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// Limits of a script. Lua 5.1 has higher ones; scripts of locks are far below both.
const (
	maxDepth  = 60
	maxLocals = 100
)

func unknown(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnknown, fmt.Sprintf(format, args...))
}

// parseChunk parses a script and checks its size and depth, and that Redis' Lua 5.1 has all of its syntax.
func parseChunk(source []byte) (chunk []ast.Stmt, err error) {
	if len(source) > MaxSource {
		return nil, unknown("it has %d bytes, at most %d are permitted", len(source), MaxSource)
	}
	if bytes.IndexByte(source, '\\') >= 0 || bytes.IndexByte(source, 0) >= 0 {
		// Lua 5.1 and the parser differ in some escapes.
		return nil, unknown("it contains a backslash or a zero byte")
	}
	defer func() {
		if broken := recover(); broken != nil {
			chunk, err = nil, unknown("it cannot be parsed: %v", broken)
		}
	}()
	chunk, err = parse.Parse(bytes.NewReader(source), "script")
	if err != nil {
		return nil, unknown("it cannot be parsed: %v", err)
	}
	locals := 0
	if err := checkSyntax(reflect.ValueOf(chunk), 0, &locals); err != nil {
		return nil, err
	}
	return chunk, nil
}

// checkSyntax walks the whole tree, also code that is never evaluated, since Redis compiles all of it.
func checkSyntax(v reflect.Value, depth int, locals *int) error {
	if depth > 5*maxDepth { // at most five levels of reflection for each level of the tree
		return unknown("it is nested too deeply")
	}
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			return checkSyntax(v.Elem(), depth+1, locals)
		}
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		if err := checkNode(v.Interface(), locals); err != nil {
			return err
		}
		return checkSyntax(v.Elem(), depth+1, locals)
	case reflect.Slice:
		for i := range v.Len() {
			if err := checkSyntax(v.Index(i), depth+1, locals); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue
			}
			if err := checkSyntax(v.Field(i), depth+1, locals); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkNode refuses what Lua 5.1 does not have, or has only in some places.
func checkNode(node any, locals *int) error {
	switch node := node.(type) {
	case *ast.GotoStmt, *ast.LabelStmt, *ast.BreakStmt:
		return unknown("it contains a jump")
	case *ast.LocalAssignStmt:
		*locals += len(node.Names)
	case *ast.FunctionExpr:
		*locals += len(node.ParList.Names)
	case *ast.NumberForStmt, *ast.GenericForStmt:
		*locals += 5
	}
	if *locals > maxLocals {
		return unknown("it has more than %d local variables", maxLocals)
	}
	return nil
}
