package fence

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestStatements(t *testing.T) {
	key, set := Row{"id": 7, "bank": "x"}, Row{"balance": 50, "active": true}
	for _, test := range []struct {
		table      Table
		upsert     bool
		key, set   Row
		query      string
		args       []any
		whatItDoes string
	}{{
		whatItDoes: "update with ?",
		table:      Table{Dialect: SQLite, Name: "accounts"}, key: key, set: set,
		query: `UPDATE "accounts" SET "active" = ?, "balance" = ?, "fence" = ? WHERE "bank" = ? AND "id" = ? AND "fence" <= ?`,
		args:  []any{true, 50, int64(9), "x", 7, int64(9)},
	}, {
		whatItDoes: "update with $n, a schema and a column of another name",
		table:      Table{Dialect: PostgreSQL, Name: "shop.accounts", Fence: "seen"}, key: key, set: set,
		query: `UPDATE "shop"."accounts" SET "active" = $1, "balance" = $2, "seen" = $3 WHERE "bank" = $4 AND "id" = $5 AND "seen" <= $6`,
		args:  []any{true, 50, int64(9), "x", 7, int64(9)},
	}, {
		whatItDoes: "update in MySQL",
		table:      Table{Dialect: MySQL, Name: "accounts"}, key: Row{"id": 7}, set: Row{"balance": 50},
		query: "UPDATE `accounts` SET `balance` = ?, `fence` = ? WHERE `id` = ? AND `fence` <= ?",
		args:  []any{50, int64(9), 7, int64(9)},
	}, {
		whatItDoes: "show the token before reading",
		table:      Table{Dialect: PostgreSQL, Name: "accounts"}, key: Row{"id": 7},
		query: `UPDATE "accounts" SET "fence" = $1 WHERE "id" = $2 AND "fence" <= $3`,
		args:  []any{int64(9), 7, int64(9)},
	}, {
		whatItDoes: "upsert with $n",
		table:      Table{Dialect: PostgreSQL, Name: "shop.accounts"}, upsert: true, key: key, set: set,
		query: `INSERT INTO "shop"."accounts" ("bank", "id", "active", "balance", "fence") VALUES ($1, $2, $3, $4, $5)` +
			` ON CONFLICT ("bank", "id") DO UPDATE SET "active" = excluded."active", "balance" = excluded."balance", "fence" = excluded."fence"` +
			` WHERE "shop"."accounts"."fence" <= excluded."fence"`,
		args: []any{"x", 7, true, 50, int64(9)},
	}, {
		whatItDoes: "upsert with ? and names that try to break out",
		table:      Table{Dialect: SQLite, Name: `a"b`}, upsert: true, key: Row{`id" = 1; --`: 7},
		query: `INSERT INTO "a""b" ("id"" = 1; --", "fence") VALUES (?, ?)` +
			` ON CONFLICT ("id"" = 1; --") DO UPDATE SET "fence" = excluded."fence" WHERE "a""b"."fence" <= excluded."fence"`,
		args: []any{7, int64(9)},
	}, {
		whatItDoes: "the same in MySQL",
		table:      Table{Dialect: MySQL, Name: "a`b"}, key: Row{"id": 7}, set: Row{"x`y": nil},
		query: "UPDATE `a``b` SET `x``y` = ?, `fence` = ? WHERE `id` = ? AND `fence` <= ?",
		args:  []any{nil, int64(9), 7, int64(9)},
	}} {
		t.Run(test.whatItDoes, func(t *testing.T) {
			build := test.table.Update
			if test.upsert {
				build = test.table.Upsert
			}
			query, args, err := build(9, test.key, test.set)
			if err != nil || query != test.query || !reflect.DeepEqual(args, test.args) {
				t.Errorf("got  %s\nwant %s\nargs %v, want %v, error %v", query, test.query, args, test.args, err)
			}
		})
	}
}

func TestStatementsRefused(t *testing.T) {
	good := Table{Dialect: SQLite, Name: "accounts"}
	key, set := Row{"id": 7}, Row{"balance": 50}
	for _, test := range []struct {
		table    Table
		token    uint64
		key, set Row
		want     string
	}{
		{Table{Name: "accounts"}, 9, key, set, "has no dialect"},
		{Table{Dialect: 77, Name: "accounts"}, 9, key, set, "has no dialect"},
		{good, 0, key, set, "not a fencing token: 0"},
		{good, math.MaxInt64 + 1, key, set, "not a fencing token"},
		{good, 9, nil, set, "no key"},
		{good, 9, Row{"id": nil}, set, `"id" is NULL`},
		{good, 9, key, Row{"ID": 8}, `"ID" stands twice`},
		{good, 9, key, Row{"fence": 8}, `"fence" stands twice`},
		{good, 9, Row{"Fence": 8}, set, "stands twice"},
		{good, 9, key, Row{"": 8}, `column ""`},
		{good, 9, key, Row{"a\x00b": 8}, "control characters"},
		{good, 9, key, Row{"a\xffb": 8}, "UTF-8"},
		{good, 9, Row{strings.Repeat("x", 129): 8}, set, "128 bytes"},
		{Table{Dialect: SQLite}, 9, key, set, `table ""`},
		{Table{Dialect: SQLite, Name: "shop."}, 9, key, set, `table "shop."`},
		{Table{Dialect: SQLite, Name: "accounts", Fence: "a\nb"}, 9, key, set, "control characters"},
	} {
		for name, build := range map[string]func(uint64, Row, Row) (string, []any, error){"Update": test.table.Update, "Upsert": test.table.Upsert} {
			query, args, err := build(test.token, test.key, test.set)
			if err == nil || !strings.Contains(err.Error(), test.want) || query != "" || args != nil {
				t.Errorf("%s(%d, %v, %v) of %+v: %q, %v; want an error with %q", name, test.token, test.key, test.set, test.table, query, err, test.want)
			}
		}
	}
	if _, _, err := good.Update(9, Row{strings.Repeat("x", 128): 8}, set); err != nil {
		t.Error("the longest name:", err)
	}
	if _, _, err := (Table{Dialect: MySQL, Name: "accounts"}).Upsert(9, key, set); err == nil || !strings.Contains(err.Error(), "INSERT IGNORE") {
		t.Error("upsert in MySQL:", err)
	}
}

type rows struct {
	n   int64
	err error
}

func (r rows) RowsAffected() (int64, error) { return r.n, r.err }

func TestApplied(t *testing.T) {
	broken := errors.New("connection reset")
	for _, test := range []struct {
		result Result
		err    error
		want   error
	}{
		{rows{n: 1}, nil, nil},
		{rows{n: 2}, nil, nil},
		{rows{n: 0}, nil, ErrStaleToken},
		{nil, broken, broken},
		{rows{err: broken}, nil, broken},
	} {
		if err := Applied(test.result, test.err); !errors.Is(err, test.want) {
			t.Errorf("Applied(%v, %v) = %v, want %v", test.result, test.err, err, test.want)
		}
	}
}

func TestDialectsHaveNames(t *testing.T) {
	for d, want := range map[Dialect]string{SQLite: "SQLite", PostgreSQL: "PostgreSQL", MySQL: "MySQL", 9: "Dialect(9)"} {
		if d.String() != want {
			t.Errorf("%s, want %s", d, want)
		}
	}
}
