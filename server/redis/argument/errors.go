package argument

import (
	"fmt"

	"github.com/quorumlock/quorumlock/server/redis/resp"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Errors of commands.
const (
	ErrSyntax  resp.Error = "ERR syntax error"
	ErrInteger resp.Error = "ERR value is not an integer or out of range"
)

// WrongArity is the error for a command with too few or too many arguments.
func WrongArity(command string) resp.Error {
	return resp.Error(fmt.Sprintf("ERR wrong number of arguments for '%s' command", command))
}

// BadExpire is the error for a TTL that is not positive.
func BadExpire(command string) resp.Error {
	return resp.Error(fmt.Sprintf("ERR invalid expire time in '%s' command", command))
}

// Unsupported is the error for what Redis has and this port has not.
func Unsupported(what string) resp.Error {
	return resp.Error(fmt.Sprintf("ERR %s is not supported: docs/REDIS.md lists what is", wire.CleanText(what, 128)))
}
