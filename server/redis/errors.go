package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/server/internal/keys"
	"github.com/quorumlock/quorumlock/server/redis/resp"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// The errors that clients compare are in the words of Redis.
const (
	errNoAuth      resp.Error = "NOAUTH Authentication required."
	errWrongUser   resp.Error = "WRONGPASS the token belongs to another identity: AUTH default takes any, or leave the user out"
	errNoScript    resp.Error = "NOSCRIPT No matching script. Please use EVAL."
	errExecAbort   resp.Error = "EXECABORT Transaction discarded because of previous errors."
	errMaxClients  resp.Error = "ERR max number of clients reached"
	errNoTTL       resp.Error = "ERR a lock needs a TTL: add PX or EX, or set --redis-default-ttl on the nodes"
	errLocked      resp.Error = "LOCKED the key is held with another value or by another identity: nothing is overwritten; use NX to acquire it once it is free"
	errEmptyValue  resp.Error = "ERR the value is empty: pass a value that only the owner of the lock knows"
	errClusterDown resp.Error = "CLUSTERDOWN the cluster has no leader now and nothing was executed: try again"
)

// errClose ends a connection without a reply.
var errClose = errors.New("closed")

// closing ends a connection for a reason.
func closing(reason error) error { return fmt.Errorf("%w: %w", errClose, reason) }

// refusal returns the error for a result that is not an outcome of the command.
func refusal(res *wire.Result) error {
	message := res.GetMessage()
	if message == "" {
		message = strings.ToLower(res.GetStatus().String())
	}
	switch res.GetStatus() {
	case wire.Status_PERMISSION_DENIED:
		return resp.Error("NOPERM " + message)
	case wire.Status_RESOURCE_EXHAUSTED:
		return resp.Error("QUOTA " + message)
	case wire.Status_NOT_LEADER:
		return errClusterDown
	case wire.Status_UNCERTAIN:
		return closing(keys.ErrUnknown)
	}
	return resp.Error("ERR " + message)
}

// failure returns the error for a request without a result.
func failure(ctx context.Context, err error) error {
	if errors.Is(err, keys.ErrNoLeader) {
		return errClusterDown
	}
	if refused, ok := errors.AsType[*keys.RefusedError](err); ok {
		return refusal(refused.Result)
	}
	return closing(cmp.Or(context.Cause(ctx), err))
}
