// Package top is the screen of qlock top: the cluster at a glance, the locks that are waited for, a lock with its
// holders and its queue, the sessions, and the events as they happen.
//
// # Layout
//
// source.go lists what the screen needs of a cluster. A Model (model.go) has a stack of pages (page.go), of which it
// shows the last one: locks.go, lock.go, sessions.go, session.go, events.go and help.go. Above each page is the
// overview (overview.go). frame.go composes both into a frame, and layout.go aligns columns. keys.go maps keys to
// changes of the model. run.go connects the model to a terminal.
//
// # How it stays current
//
// One watch of all events runs as long as the screen (feed.go). Four times a second the model takes the events that
// have arrived, and repeats the reads that they concern (read.go), so that many events cause few reads and few
// frames. Two things cause no event: that a node becomes unreachable, and that a session sends a heartbeat.
// Therefore the overview, and what the page shows, are also read again every few seconds.
//
// If a read fails, the last answer stays on the screen, greyed and with its time, and the read is repeated.
//
// The model is changed only by messages and has its clock as a field. Tests compare whole frames.
package top
