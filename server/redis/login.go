package redis

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/callers"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/server/redis/resp"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxFailures bounds the failed attempts of a connection to authenticate. Each is audited, and takes a look at the
// state.
const maxFailures = 3

// login is the use of a connection by a caller.
type login struct {
	// Context carries the caller. It ends when the connection has to end.
	context.Context
	caller  *access.Caller
	account *quota.Account
	from    identity.Sender
	leave   func()

	// request is the context of the latest request, which limit ends.
	request context.Context
	cancel  context.CancelCauseFunc
	limit   *time.Timer
}

// errTooLong ends a request that takes longer than RequestTimeout.
var errTooLong = errors.New("a request took too long")

// begin returns the context of a request, which ends after timeout unless finish is called before. The next request uses
// it as well, because a context and a timer for each of them are expensive.
func (l *login) begin(timeout time.Duration) context.Context {
	if l.request != nil && l.request.Err() == nil {
		l.limit.Reset(timeout)
		return l.request
	}
	ctx, cancel := context.WithCancelCause(l)
	l.request, l.cancel, l.limit = ctx, cancel, time.AfterFunc(timeout, func() { cancel(errTooLong) })
	return ctx
}

// finish ends the use of the context by a request.
func (l *login) finish() {
	if !l.limit.Stop() {
		l.cancel(errTooLong) // the timer fires just now, and must not end the next request instead
	}
}

// end frees what the login uses.
func (l *login) end() {
	if l.request != nil {
		l.cancel(nil)
	}
	l.leave()
}

// defaultUser is what AUTH names if it gives a token only.
const defaultUser = "default"

var (
	errGuessing = errors.New("it failed to authenticate too often")
	errFull     = errors.New("too many connections (--max-connections)")
)

// authenticate makes the owner of a token the caller of the connection. user must be its identity, or the default.
func (c *conn) authenticate(user, token string) error {
	caller, err := c.srv.callers.Authenticate(c.Conn, token, nil)
	switch {
	case err == nil && user != defaultUser && user != caller.Identity():
		caller.Dismissed(errors.New("the token belongs to another identity than the user of AUTH"))
		return c.failed(errWrongUser)
	case errors.Is(err, access.ErrNoRole):
		return c.failed(resp.Error("NOPERM " + err.Error()))
	case err != nil:
		return c.failed(resp.Error("WRONGPASS " + err.Error()))
	}
	return c.establish(caller)
}

// failed counts a failed attempt. The last one ends the connection.
func (c *conn) failed(reply resp.Error) error {
	if c.failures++; c.failures < maxFailures {
		return reply
	}
	c.out.Error(string(reply))
	return closing(errGuessing)
}

// identify makes sure that the connection has a caller: that of its certificate, or an anonymous one. It tries once.
func (c *conn) identify() error {
	if c.login != nil {
		return nil
	}
	if c.stranger {
		return errNoAuth
	}
	caller, err := c.srv.callers.Authenticate(c.Conn, "", nil)
	if err != nil {
		c.stranger = true
		return errNoAuth
	}
	return c.establish(caller)
}

// establish gives the connection a caller instead of the one it had, and a place if it had none.
func (c *conn) establish(caller *access.Caller) error {
	if c.login == nil {
		select {
		case c.srv.places <- struct{}{}:
		default:
			return c.full()
		}
	}
	next := c.enter(caller)
	if next == nil {
		if c.login == nil {
			<-c.srv.places
		}
		return c.full()
	}
	if c.login != nil {
		c.login.end()
	}
	c.login = next
	c.place.End()
	return nil
}

// enter counts the connection for a caller. It returns nil if its identity has its share.
func (c *conn) enter(caller *access.Caller) *login {
	account := c.srv.cfg.Quotas.Open(caller.Identity())
	disconnect, refused := account.Connect(c.srv.share)
	if refused != nil {
		account.Close()
		return nil
	}
	remove := c.srv.callers.Add(&callers.Connection{Caller: caller, Conn: c.Conn, End: c.end})
	return &login{
		Context: access.NewContext(c.ctx, caller),
		caller:  caller,
		account: account,
		from:    identity.Sender{Identity: caller.Identity(), Connection: c},
		leave: func() {
			remove()
			disconnect()
			account.Close()
		},
	}
}

// full refuses a connection for which there is no place.
func (c *conn) full() error {
	c.out.Error(string(errMaxClients))
	return closing(errFull)
}

// logout frees the place of the connection. The next command needs a caller again.
func (c *conn) logout() {
	if c.login == nil {
		return
	}
	c.login.end()
	c.login, c.stranger = nil, false
	<-c.srv.places
	c.established = time.Now().Add(c.srv.cfg.Limits.HandshakeTimeout)
}

// admit refuses a request that the caller may not send, or for which it has sent too many. denied is the refusal of the
// policy, nil if it allows the request.
func (c *conn) admit(request proto.Message, denied *wire.Result) error {
	res := c.login.account.Request(request, denied)
	if res == nil {
		return nil
	}
	c.login.caller.Denied(request, res)
	return refusal(res)
}
