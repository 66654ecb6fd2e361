package script

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

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
	if bytes.ContainsAny(source, "\\\x00") || nestedBrackets(source) {
		// The parser accepts more escapes than Lua 5.1, and nested brackets.
		return nil, unknown("it contains a backslash, a zero byte or nested long brackets")
	}
	defer func() {
		if recover() != nil {
			chunk, err = nil, unknown("it cannot be parsed")
		}
	}()
	chunk, err = parse.Parse(bytes.NewReader(source), "script")
	if err != nil {
		return nil, unparsable(err)
	}
	if repeatedSeparators(source) {
		return nil, unknown("it cannot be parsed: a comma or semicolon follows another")
	}
	locals := 0
	if err := checkSyntax(reflect.ValueOf(chunk), 0, &locals); err != nil {
		return nil, err
	}
	return chunk, nil
}

// unparsable returns an error of one line, without what the script contains.
func unparsable(err error) error {
	at := &parse.Error{}
	if errors.As(err, &at) && at.Pos.Line > 0 {
		return unknown("it cannot be parsed: there is an error in line %d", at.Pos.Line)
	}
	return unknown("it cannot be parsed: it ends too early")
}

// nestedBrackets reports whether [[ occurs again before ]], which is an error in Lua 5.1, also in comments.
func nestedBrackets(source []byte) bool {
	for {
		_, rest, found := bytes.Cut(source, []byte("[["))
		if !found {
			return false
		}
		inner, rest, _ := bytes.Cut(rest, []byte("]]"))
		if bytes.Contains(inner, []byte("[[")) {
			return true
		}
		source = rest
	}
}

// repeatedSeparators reports whether a comma or semicolon follows another, which the parser accepts in tables. The source
// can be parsed.
func repeatedSeparators(source []byte) bool {
	scanner, lexer := parse.NewScanner(bytes.NewReader(source), "script"), &parse.Lexer{}
	last := false
	for {
		token, err := scanner.Scan(lexer)
		if err != nil || token.Type == parse.EOF {
			return false
		}
		separates := token.Type == ',' || token.Type == ';'
		if separates && last {
			return true
		}
		last = separates
	}
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
	case *ast.StringExpr:
		if strings.ContainsAny(node.Value, "\r\n") {
			return unknown("it contains a string of several lines")
		}
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
