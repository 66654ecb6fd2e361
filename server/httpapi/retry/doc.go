// Package retry makes the numbered requests of sessions repeatable over HTTP. It finds their outcomes, for callers that
// send a request again, and undoes the acquires that no caller waits for any more.
package retry
