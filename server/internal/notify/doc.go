// Package notify delivers pushes to sessions: outcomes of requests that have waited, lost holds and sessions, and
// notices that others want a hold.
//
// A connection binds the sessions that are attached to it ([Notifier.Bind]), and callers without a connection of
// their own await single requests ([Notifier.Await]). The replica publishes the events of each entry in log
// order. A notifier is open during one leadership: afterwards every session has to attach again, because grants
// of entries whose outcome is unknown are not delivered.
package notify
