package client

import (
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Operator actions on the fake's holds, and the verification of a token.

func (v *service) force(r *wire.ForceRelease) *wire.Result {
	k := v.claimOf(nil, r.GetHoldId(), r.GetToken())
	if k == nil {
		return status(wire.Status_NOT_HELD)
	}
	v.endHold(k, wire.HoldLost_FORCED, r.GetReason())
	return &wire.Result{Status: wire.Status_OK, Revision: v.revision}
}

func (v *service) revoke(r *wire.Revoke) *wire.Result {
	k := v.claimOf(nil, r.GetHoldId(), r.GetToken())
	if k == nil {
		return status(wire.Status_NOT_HELD)
	}
	k.revocation = &wire.Revocation{Reason: r.GetReason(), GraceMs: r.GetGraceMs(), RevokedUnixMs: time.Now().UnixMilli()}
	if r.GetGraceMs() > 0 {
		v.grace(k)
	}
	k.push(&wire.Push{Body: &wire.Push_HoldNotice{HoldNotice: &wire.HoldNotice{HoldId: k.id, Token: k.token, Revocation: k.revocation}}})
	return &wire.Result{Status: wire.Status_OK, Revision: v.revision}
}

func (v *service) verify(r *wire.VerifyTokenRequest) *wire.Response {
	answer := &wire.VerifyTokenResponse{Revision: v.revision}
	for _, k := range v.claims() {
		if k.held && k.has(r.GetToken()) && k.locks[0].GetName() == r.GetName() {
			answer.Held, answer.Cached, answer.Holder = true, k.tokens > 0, &wire.HolderInfo{HoldId: k.id, Token: k.token}
			if left, bounded := v.left(k); bounded {
				answer.Holder.RemainingHoldMs = &left
			}
		}
	}
	return &wire.Response{Result: status(wire.Status_OK), Body: &wire.Response_VerifyToken{VerifyToken: answer}}
}
