// Package fence implements the resource's side of a lock: what a database, a file or a service has to do
// with the fencing tokens that its callers present.
//
// A lock excludes running processes from each other. A process that is stopped between checking its hold
// and writing, by a paused machine or a long garbage collection, writes when it resumes, and another
// process may hold the lock by then. Only the resource can refuse that write. Every grant has a greater
// token than all grants before it, so a write with a lower token than one already seen comes from a former
// holder.
//
// Two rules must be followed. The comparison and the write must be one atomic step. And a caller that reads
// in order to write must present its token before it reads: otherwise a stopped predecessor can still write
// between that read and the write based on it.
//
// The tokens of shared holds and of permits only show which grant came later. Only the tokens of exclusive
// holds fence.
//
// # In memory
//
// A [Guard] remembers the highest token of each resource (guard.go). It loses that state with its process,
// so use it for resources that live in the same process.
//
// # In a database
//
// A [Table] generates statements that compare and write in one step (table.go), based on a column that
// holds the highest token:
//
//	ALTER TABLE accounts ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
//
//	accounts := fence.Table{Dialect: fence.PostgreSQL, Name: "accounts"}
//	query, args, err := accounts.Update(token, fence.Row{"id": 7}, fence.Row{"balance": 50})
//	err = fence.Applied(db.ExecContext(ctx, query, args...))
//
// This runs UPDATE "accounts" SET "balance" = $1, "fence" = $2 WHERE "id" = $3 AND "fence" <= $4 and
// returns [ErrStaleToken] if that changed no row. All writers must use such statements: a statement that
// ignores the column is not fenced. Do not delete rows while late writers may exist, because the token is
// deleted with the row; mark the rows as deleted instead.
//
// # In an object store
//
// Keep the token in the object's metadata, and make each write conditional on the object being the one
// whose metadata was read. The condition is If-Match with the ETag on S3 and Azure, and ifGenerationMatch
// on Google Cloud Storage:
//
//  1. Read the object's metadata and its ETag or generation. If its token is greater than yours, stop:
//     you no longer hold the lock.
//  2. Write the object with your token in its metadata, conditional on the ETag or generation just read
//     (If-None-Match: * or generation 0 if there was no object).
//  3. If the store refuses the write because the object changed, start over with step 1.
//
// See the object store example. Listing and copying do not compare tokens; multipart uploads carry the
// condition on their last request.
package fence
