package main

import (
	"fmt"
	"io"
	"time"

	"github.com/quorumlock/quorumlock/internal/logqueue"
)

const (
	// maxMessageBytes bounds the messages that wait to be written.
	maxMessageBytes = 256 << 10
	// lastPrint is how long the end of the program waits for its last messages to be written.
	lastPrint = time.Second
	// orderPrint is how long the start of a command waits for the messages about the wait, which should not
	// appear in the middle of its output.
	orderPrint = 100 * time.Millisecond
)

// newMessages returns a queue of messages for people: a pipe may be full and a terminal stopped while a command has to
// be ended.
func newMessages(to io.Writer) *logqueue.Queue {
	q := logqueue.New(to, maxMessageBytes)
	q.SetReport(func(lost uint64) []byte {
		return fmt.Appendf(nil, "qlock: %s lost here, because nobody read them in time\n", count(lost, "message"))
	})
	return q
}
