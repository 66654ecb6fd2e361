//go:build !linux

package netns

import (
	"context"
	"errors"
	"net"
)

// space exists only on Linux.
type space struct{}

var errNoSpaces = errors.New("there are none on this system")

func newSpace() (space, error)                               { return space{}, errNoSpaces }
func (space) in(do func() error) error                       { return errNoSpaces }
func (space) dial(context.Context, string) (net.Conn, error) { return nil, errNoSpaces }
func (space) path() string                                   { return "" }
func (space) close()                                         {}
