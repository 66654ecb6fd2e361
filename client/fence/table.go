package fence

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Dialect is a database's syntax for quoting names and numbering arguments.
type Dialect uint8

// The supported dialects.
const (
	// SQLite uses "name" and ?.
	SQLite Dialect = iota + 1
	// PostgreSQL uses "name" and $1. It also fits CockroachDB.
	PostgreSQL
	// MySQL uses `name` and ?. It also fits MariaDB. Connections must report the rows found, not the rows
	// changed (clientFoundRows=true with github.com/go-sql-driver/mysql): otherwise a row that already has
	// the new values looks like a refused one.
	MySQL
)

// String returns the name of the dialect.
func (d Dialect) String() string {
	switch d {
	case SQLite:
		return "SQLite"
	case PostgreSQL:
		return "PostgreSQL"
	case MySQL:
		return "MySQL"
	}
	return fmt.Sprintf("Dialect(%d)", uint8(d))
}

// Row maps columns to values. Names are quoted unchanged, so PostgreSQL treats them as case-sensitive.
type Row map[string]any

// Table is a database table whose rows remember the highest token presented to them.
type Table struct {
	// Dialect is required.
	Dialect Dialect
	// Name is the table's name, or schema.table.
	Name string
	// Fence is the name of the token column, a 64-bit integer that is never NULL and starts at 0. If empty,
	// the column is "fence".
	Fence string
}

// Update returns a statement that updates the row with that key, unless a later holder's token was
// presented to it. With an empty set it only presents the token, which must be done before reading a row in
// order to change it. Pass the result of the statement to Applied.
func (t Table) Update(token uint64, key, set Row) (query string, args []any, err error) {
	w, err := t.begin(token, key, set)
	if err != nil {
		return "", nil, err
	}
	w.text("UPDATE ").text(w.table).text(" SET ")
	for _, name := range names(set) {
		w.equals(name, set[name]).text(", ")
	}
	w.equals(t.fence(), int64(token)).text(" WHERE ")
	for _, name := range names(key) {
		w.equals(name, key[name]).text(" AND ")
	}
	w.name(t.fence()).text(" <= ").arg(int64(token))
	return w.query.String(), w.args, nil
}

// Upsert returns a statement that inserts the row with that key, or updates it unless a later holder's
// token was presented to it. The columns of the key must be those of the primary key or of a unique index.
// Upsert returns an error for MySQL, which has no such statement that reports a refusal: there, INSERT
// IGNORE the key with a fence of 0 and then Update.
func (t Table) Upsert(token uint64, key, set Row) (query string, args []any, err error) {
	if t.Dialect == MySQL {
		return "", nil, errors.New("quorumlock: no fenced upsert in MySQL: INSERT IGNORE the key with a fence of 0, then Update")
	}
	w, err := t.begin(token, key, set)
	if err != nil {
		return "", nil, err
	}
	keys, columns := names(key), append(names(set), t.fence())
	w.text("INSERT INTO ").text(w.table).text(" (")
	w.list(append(slices.Clone(keys), columns...), func(name string) { w.name(name) })
	w.text(") VALUES (")
	w.list(keys, func(name string) { w.arg(key[name]) })
	for _, name := range names(set) {
		w.text(", ").arg(set[name])
	}
	w.text(", ").arg(int64(token)).text(") ON CONFLICT (")
	w.list(keys, func(name string) { w.name(name) })
	w.text(") DO UPDATE SET ")
	w.list(columns, func(name string) { w.name(name).text(" = excluded.").name(name) })
	w.text(" WHERE ").text(w.table).text(".").name(t.fence()).text(" <= excluded.").name(t.fence())
	return w.query.String(), w.args, nil
}

// Result is the result of a statement; sql.Result implements it.
type Result interface {
	RowsAffected() (int64, error)
}

// Applied converts the result of a Table's statement to an error: the statement's own error if it failed,
// or ErrStaleToken if it changed no row.
//
//	err := fence.Applied(db.ExecContext(ctx, query, args...))
//
// An Update also changes no row if there is none with that key. Where rows may be missing, use Upsert or
// check that the row exists.
func Applied(result Result, err error) error {
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	switch {
	case err != nil:
		return fmt.Errorf("quorumlock: it is not known whether the write was refused: %w", err)
	case rows == 0:
		return ErrStaleToken
	}
	return nil
}

func (t Table) fence() string {
	if t.Fence == "" {
		return "fence"
	}
	return t.Fence
}

// begin validates everything that goes into a statement.
func (t Table) begin(token uint64, key, set Row) (*writer, error) {
	if t.Dialect < SQLite || t.Dialect > MySQL {
		return nil, fmt.Errorf("quorumlock: table %q has no dialect: set SQLite, PostgreSQL or MySQL", t.Name)
	}
	if err := validToken(token); err != nil {
		return nil, err
	}
	if len(key) == 0 {
		return nil, fmt.Errorf("quorumlock: no key for a row of %q: name its columns", t.Name)
	}
	w := &writer{dialect: t.Dialect}
	for i, part := range strings.Split(t.Name, ".") {
		if err := validName(part); err != nil {
			return nil, fmt.Errorf("quorumlock: table %q: %w", t.Name, err)
		}
		if i > 0 {
			w.table += "."
		}
		w.table += t.Dialect.quote(part)
	}
	columns := slices.Concat(names(key), names(set), []string{t.fence()})
	for i, name := range columns {
		if err := validName(name); err != nil {
			return nil, fmt.Errorf("quorumlock: column %q: %w", name, err)
		}
		same := func(other string) bool { return strings.EqualFold(name, other) }
		if slices.ContainsFunc(columns[:i], same) {
			return nil, fmt.Errorf("quorumlock: column %q stands twice among key, values and fence", name)
		}
	}
	for name, value := range key {
		if value == nil {
			return nil, fmt.Errorf("quorumlock: key column %q is NULL, which no row's is", name)
		}
	}
	return w, nil
}

// names returns the columns of a row in sorted order, so that statements are deterministic.
func names(r Row) []string { return slices.Sorted(maps.Keys(r)) }

var errName = errors.New("give a name of 1 to 128 bytes of UTF-8 without control characters")

func validName(name string) error {
	if name == "" || len(name) > 128 || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return errName
	}
	return nil
}

// quote quotes a valid name.
func (d Dialect) quote(name string) string {
	mark := `"`
	if d == MySQL {
		mark = "`"
	}
	return mark + strings.ReplaceAll(name, mark, mark+mark) + mark
}

// writer builds a statement.
type writer struct {
	dialect Dialect
	table   string // quoted
	query   strings.Builder
	args    []any
}

func (w *writer) text(s string) *writer {
	w.query.WriteString(s)
	return w
}

func (w *writer) name(name string) *writer { return w.text(w.dialect.quote(name)) }

func (w *writer) equals(name string, value any) *writer {
	return w.name(name).text(" = ").arg(value)
}

func (w *writer) arg(value any) *writer {
	w.args = append(w.args, value)
	if w.dialect == PostgreSQL {
		return w.text("$" + strconv.Itoa(len(w.args)))
	}
	return w.text("?")
}

func (w *writer) list(names []string, write func(name string)) {
	for i, name := range names {
		if i > 0 {
			w.text(", ")
		}
		write(name)
	}
}
