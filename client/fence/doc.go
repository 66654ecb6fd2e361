// Package fence is for the resource's side of a lock: what a database, a file or a
// service has to do with the fencing tokens that its callers show it.
//
// A lock keeps processes apart that run. One that is stopped between its last look at
// its hold and its write, by a paused machine or a long collection of garbage, writes
// whenever it goes on, and others may hold the lock by then. Only the resource can
// refuse it: every grant's token is greater than that of every grant before it, so that
// a write with a lower token than one seen before comes from a holder of the past.
//
// Two rules make it work. The comparison and the write are one step. And whoever reads
// in order to write shows its token before it reads: otherwise a stopped predecessor can
// still write between that read and the write that follows from it.
//
// Tokens of shared holds and of permits say which grant came later and no more. Only
// those of exclusive holds fence.
//
// # In memory
//
// A [Guard] remembers the highest token of each resource (guard.go). It forgets with its
// process, so that it serves resources that live in that process as well.
//
// # In a database
//
// A [Table] writes statements that compare and write in one step (table.go), given a
// column that holds the highest token:
//
//	ALTER TABLE accounts ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
//
//	accounts := fence.Table{Dialect: fence.PostgreSQL, Name: "accounts"}
//	query, args, err := accounts.Update(token, fence.Row{"id": 7}, fence.Row{"balance": 50})
//	err = fence.Applied(db.ExecContext(ctx, query, args...))
//
// runs UPDATE "accounts" SET "balance" = $1, "fence" = $2 WHERE "id" = $3 AND "fence" <= $4
// and returns [ErrStaleToken] if that changed no row. All who write must use such
// statements: one that does not look at the column goes past it. Rows are not to be
// deleted while late writers may be about, or their memory is gone too: mark them.
//
// # In an object store
//
// Keep the token in the object's metadata and write on condition that the object is
// still the one whose metadata were looked at. That is If-Match with the ETag on S3 and
// Azure, ifGenerationMatch on Google Cloud Storage:
//
//  1. Read the object's metadata and its ETag or generation. If the token there is
//     greater than ours, stop: we are late.
//  2. Write the object with our token as its metadata, if ETag or generation are those
//     just read (If-None-Match: * or generation 0 if there was no object).
//  3. If the store refuses since the object changed, begin again with 1.
//
// The object store example shows it. Listing and copying do not compare anything;
// multipart uploads carry the condition on their last request.
package fence
