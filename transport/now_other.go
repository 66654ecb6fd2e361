//go:build !unix

package transport

import "net"

// writeNow is for systems whose connections can be written without waiting.
type writeNow struct{}

func newWriteNow(net.Conn) *writeNow { return nil }

func (*writeNow) write([]byte) int { return 0 }
