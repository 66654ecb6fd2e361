package access

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxTokenLife bounds how long a token can be valid.
const maxTokenLife = 100 * 365 * 24 * time.Hour

// Command returns the command for a change of the policy or the tokens, or the refusal of a malformed request.
func (c *Caller) Command(request proto.Message) (*wire.Command, *wire.Result) {
	cmd := &wire.Command{Caller: c.origin}
	switch op := request.(type) {
	case *wire.SetPolicy:
		cmd.Op = &wire.Command_SetPolicy{SetPolicy: op}
	case *wire.RevokeToken:
		cmd.Op = &wire.Command_RevokeToken{RevokeToken: op}
	case *wire.CreateTokenRequest:
		create, err := createToken(op, time.Now())
		if err != nil {
			return nil, &wire.Result{Status: wire.Status_INVALID_ARGUMENT, Message: err.Error()}
		}
		cmd.Op = &wire.Command_CreateToken{CreateToken: create}
	}
	return cmd, nil
}

// createToken keeps only the hash of the token. Its end is counted from the clock of this node.
func createToken(req *wire.CreateTokenRequest, now time.Time) (*wire.CreateToken, error) {
	sum, err := identity.HashToken(req.GetAuthToken())
	if err != nil {
		return nil, err
	}
	if err := identity.ValidName(req.GetName()); err != nil {
		return nil, err
	}
	op := &wire.CreateToken{Sha256: sum, Name: req.GetName(), Reason: req.GetReason(), Operator: req.GetOperator(), Ticket: req.GetTicket()}
	switch ttl := req.GetTtlMs(); {
	case ttl > uint64(maxTokenLife.Milliseconds()):
		return nil, fmt.Errorf("ttl_ms is %d: at most %d is allowed, and 0 for a token that does not expire", ttl, maxTokenLife.Milliseconds())
	case ttl > 0:
		op.EndsUnixMs = now.UnixMilli() + int64(ttl)
	}
	return op, nil
}

// Created returns the token that a request has created, from the applied state.
func (c *Caller) Created(req *wire.CreateTokenRequest) *wire.CreateTokenResponse {
	sum, err := identity.HashToken(req.GetAuthToken())
	if err != nil {
		return &wire.CreateTokenResponse{}
	}
	return &wire.CreateTokenResponse{Token: c.source.Access().Token(sum)}
}
