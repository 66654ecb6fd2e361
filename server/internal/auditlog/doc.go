// Package auditlog writes what operators did and what callers were refused to a file of the node.
//
// The replicated state keeps a bounded number of audit records. The file keeps all that the node applies, one JSON
// object per line, each once and in order, also across restarts: every line says which record was the last one before
// it, so the last line says where to continue. Records that the node never saw, because it got a snapshot instead of
// the log, are reported as missing. Writing does not block: see [Log].
//
// The file belongs to the operator. It is reopened if it was renamed or removed, and when [Log.Reopen] is called.
//
// Denials are not replicated, since a caller without rights must not cause writes of the cluster. [Log.Deny] limits
// them by identity or, for callers that are not verified, by address.
package auditlog
