package top

// helpText explains the keys.
var helpText = text(
	"↑ ↓ j k          move                     g G Home End   first, last",
	"PgUp PgDn        move by a page           Enter → l      open",
	"Esc ← h          back                     1 2 3 Tab      locks, sessions, events",
	"/                only a prefix: of a lock, or of a session's identity, host or name",
	"s                change the order         p Space        pause the events",
	"r                read again now           q Ctrl-C       quit",
	"",
	"The screen follows the events of the cluster. What is grey could not be read",
	"again: it is as it was at the time that the title shows.",
	"HEARTBEAT is how long ago the session was last heard of.",
)
