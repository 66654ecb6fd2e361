package fencing

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client/fence"
)

// database creates a separate database for a test.
func database(t *testing.T, schema string) *sql.DB {
	t.Helper()
	db, err := open(filepath.Join(t.TempDir(), "test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	return db
}

type build func(token uint64, key, set fence.Row) (string, []any, error)

func apply(ctx context.Context, db *sql.DB, build build, token uint64, key, set fence.Row) error {
	query, args, err := build(token, key, set)
	if err != nil {
		return err
	}
	return fence.Applied(db.ExecContext(ctx, query, args...))
}

func TestUpdateRefusesLowerTokens(t *testing.T) {
	db := database(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT, fence INTEGER NOT NULL DEFAULT 0); INSERT INTO t (id, v) VALUES (1, 'a'), (2, 'a')`)
	table := fence.Table{Dialect: fence.SQLite, Name: "main.t"}
	for _, step := range []struct {
		token    uint64
		key, set fence.Row
		want     error
	}{
		{5, fence.Row{"id": 1}, fence.Row{"v": "b"}, nil},
		{5, fence.Row{"id": 1}, fence.Row{"v": "b"}, nil}, // the same again
		{6, fence.Row{"id": 1}, nil, nil},                 // the next holder presents its token before it reads
		{5, fence.Row{"id": 1}, fence.Row{"v": "late"}, fence.ErrStaleToken},
		{5, fence.Row{"id": 2}, fence.Row{"v": "c"}, nil}, // another row
		{7, fence.Row{"id": 3}, fence.Row{"v": "d"}, fence.ErrStaleToken},
		{7, fence.Row{"id": 1}, fence.Row{"v": nil}, nil},
	} {
		if err := apply(t.Context(), db, table.Update, step.token, step.key, step.set); !errors.Is(err, step.want) {
			t.Errorf("token %d for %v = %v: %v, want %v", step.token, step.key, step.set, err, step.want)
		}
	}
	var v sql.NullString
	var seen uint64
	if err := db.QueryRowContext(t.Context(), "SELECT v, fence FROM t WHERE id = 1").Scan(&v, &seen); err != nil || v.Valid || seen != 7 {
		t.Errorf("row 1 is %v with token %d, %v", v, seen, err)
	}
}

func TestUpsertInsertsAndRefuses(t *testing.T) {
	db := database(t, `CREATE TABLE "odd ""name" ("a key" TEXT, part INTEGER, v TEXT, "seen;" INTEGER NOT NULL, PRIMARY KEY ("a key", part))`)
	for _, name := range []string{`odd "name`, `main.odd "name`} {
		table := fence.Table{Dialect: fence.SQLite, Name: name, Fence: "seen;"}
		key := fence.Row{"a key": name, "part": 1}
		for _, step := range []struct {
			token uint64
			v     string
			want  error
		}{{5, "first", nil}, {4, "late", fence.ErrStaleToken}, {5, "again", nil}, {6, "next", nil}, {5, "late", fence.ErrStaleToken}} {
			if err := apply(t.Context(), db, table.Upsert, step.token, key, fence.Row{"v": step.v}); !errors.Is(err, step.want) {
				t.Errorf("token %d writes %s: %v, want %v", step.token, step.v, err, step.want)
			}
		}
		var v string
		if err := db.QueryRowContext(t.Context(), `SELECT v FROM "odd ""name" WHERE "a key" = ?`, name).Scan(&v); err != nil || v != "next" {
			t.Errorf("the row says %q, %v", v, err)
		}
	}
}

// TestWritersAtOnce writes concurrently on separate connections. The database decides which writes are late,
// and the accepted tokens never decrease.
func TestWritersAtOnce(t *testing.T) {
	const writers, writes = 4, 25
	db := database(t, `
		CREATE TABLE t (id INTEGER PRIMARY KEY, fence INTEGER NOT NULL DEFAULT 0); INSERT INTO t (id) VALUES (1);
		CREATE TABLE history (n INTEGER PRIMARY KEY AUTOINCREMENT, fence INTEGER);
		CREATE TRIGGER seen AFTER UPDATE ON t BEGIN INSERT INTO history (fence) VALUES (NEW.fence); END`)
	db.SetMaxOpenConns(writers)
	table := fence.Table{Dialect: fence.SQLite, Name: "t"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := range writes {
				token := uint64(1 + n*writers + (i+n)%writers)
				if err := apply(ctx, db, table.Update, token, fence.Row{"id": 1}, nil); err != nil && !errors.Is(err, fence.ErrStaleToken) {
					t.Errorf("token %d: %v", token, err)
				}
			}
		})
	}
	wg.Wait()
	rows, err := db.QueryContext(ctx, "SELECT fence FROM history ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var history []int
	for rows.Next() {
		var token int
		if err := rows.Scan(&token); err != nil {
			t.Fatal(err)
		}
		history = append(history, token)
	}
	if rows.Err() != nil || !slices.IsSorted(history) || len(history) == 0 || history[len(history)-1] != writers*writes {
		t.Errorf("tokens as they were let in: %v, %v", history, rows.Err())
	}
}
