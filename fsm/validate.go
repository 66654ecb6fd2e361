package fsm

import (
	"cmp"
	"fmt"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Validate returns the refusal of a command that no state would accept under these settings, or nil. It
// depends only on the command and the settings, so a leader can refuse on every port, before anything is
// logged, what Apply would refuse: names, texts, sizes, options and ranges. Apply calls it again, because
// settings may have changed in between. A refused command is not remembered, and its acknowledgements do
// not take effect.
func Validate(cmd *wire.Command, settings *wire.Settings) *wire.Result {
	if most := settings.GetMaxWindow() + settings.GetMaxClaimsPerSession(); uint64(len(cmd.Acked)) > most {
		return invalid("%d acknowledgements in one request, at most %d are allowed", len(cmd.Acked), most)
	}
	if refusal := cmp.Or(validProposer(cmd), validCaller(cmd.Caller), claimsNode(cmd.Caller)); refusal != nil {
		return refusal
	}
	switch op := cmd.Op.(type) {
	case *wire.Command_Acquire, *wire.Command_AcquireCached, *wire.Command_Release, *wire.Command_Cancel,
		*wire.Command_SetValue, *wire.Command_Upgrade, *wire.Command_Downgrade, *wire.Command_Extend:
		if cmd.Seq == 0 {
			return invalid("the request needs a sequence number from 1 on")
		}
		return validateRequest(cmd, settings)
	case *wire.Command_OpenSession:
		client := op.OpenSession.GetClient()
		return cmp.Or(validSession(settings, op.OpenSession.GetSecretHash(), op.OpenSession.GetTtlMs(), settings.GetMaxTtlMs(), client), validClientSize(settings, client))
	case *wire.Command_AttachSession:
		return cmp.Or(validSecretHash(op.AttachSession.GetSecretHash()), validAddress(op.AttachSession.GetAddress()))
	case *wire.Command_OpenLease:
		return validLease(settings, op.OpenLease)
	case *wire.Command_ExtendLease:
		return cmp.Or(validSecretHash(op.ExtendLease.GetSecretHash()), validTTL(settings, op.ExtendLease.GetTtlMs(), settings.GetMaxLeaseTtlMs()))
	case *wire.Command_ChangeKeys:
		return validKeys(settings, op.ChangeKeys)
	case *wire.Command_ConfirmLease:
		return validSecretHash(op.ConfirmLease.GetSecretHash())
	case *wire.Command_ReleaseLease:
		return validSecretHash(op.ReleaseLease.GetSecretHash())
	case *wire.Command_CloseSession, *wire.Command_Acknowledge:
		return nil
	}
	if ProposerOf(cmd) == wire.Proposer_NODE {
		return cmp.Or(onlyNodes(cmd), validateNodes(cmd))
	}
	return validateOperators(cmd)
}

const (
	// plainCommandBytes has room for 64 names and everything else that is always small.
	plainCommandBytes = 64 << 10
	// restoreCommandBytes has room for as many records as the audit log keeps.
	restoreCommandBytes = 1 << 20
	// ackBytes is the largest size of an acknowledgement in a command.
	ackBytes = 10
)

// ValidateSize returns the refusal of a command of so many bytes if no command of its kind needs that
// many, or nil. Fields that a program does not know are logged together with the known ones and dropped
// only afterwards, so they have to be bounded as well.
func ValidateSize(cmd *wire.Command, size int, settings *wire.Settings) *wire.Result {
	if size <= plainCommandBytes {
		return nil
	}
	most := uint64(plainCommandBytes)
	switch cmd.Op.(type) {
	case *wire.Command_RestoreBackup:
		most = restoreCommandBytes
	case *wire.Command_SetPolicy:
		most = plainCommandBytes + rights.MaxPolicyBytes
	case *wire.Command_Bootstrap:
		most += maxMembers * 5 * maxMemberText
	default:
		acks := settings.GetMaxWindow() + settings.GetMaxClaimsPerSession()
		most += uint64(settings.GetMaxValueBytes()) + uint64(settings.GetMaxClientInfoBytes()) + acks*ackBytes
	}
	if uint64(size) <= most {
		return nil
	}
	return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("the request has %d bytes, no request needs more than %d", size, most))
}

// validateRequest checks a request of a session.
func validateRequest(cmd *wire.Command, settings *wire.Settings) *wire.Result {
	switch op := cmd.Op.(type) {
	case *wire.Command_Acquire:
		return cmp.Or(validAcquire(op.Acquire), validValue(settings, op.Acquire.GetValue()))
	case *wire.Command_AcquireCached:
		return validCached(settings, op.AcquireCached)
	case *wire.Command_SetValue:
		return validValue(settings, op.SetValue.GetValue())
	case *wire.Command_Extend:
		return validMaxHold(op.Extend.GetMaxHoldMs())
	case *wire.Command_Release, *wire.Command_Cancel, *wire.Command_Upgrade, *wire.Command_Downgrade:
		return nil // only ids and times
	}
	return unknownOperation()
}

// validateNodes checks the commands that nodes propose.
func validateNodes(cmd *wire.Command) *wire.Result {
	switch op := cmd.Op.(type) {
	case *wire.Command_Bootstrap:
		return validBootstrap(op.Bootstrap)
	case *wire.Command_BeginTerm:
		return validBeginTerm(op.BeginTerm)
	case *wire.Command_PutMember:
		return validReport(op.PutMember.GetMember())
	case *wire.Command_DropMember:
		return validText("the id", op.DropMember.GetId(), maxMemberText)
	case *wire.Command_RaiseLevel, *wire.Command_SuspendGrants, *wire.Command_ResumeGrants,
		*wire.Command_ExpireSession, *wire.Command_TimeoutWait, *wire.Command_ExpireHold, *wire.Command_EndDelay:
		return nil // only numbers, all of which are possible
	case *wire.Command_RecordBackup:
		return validSavedBackup(op.RecordBackup.GetBackup())
	case *wire.Command_RecordRemaining:
		if n := len(op.RecordRemaining.GetKeys()); n > maxRemaining {
			return invalid("%d keys: at most %d are allowed", n, maxRemaining)
		}
		return nil
	}
	return unknownOperation()
}

// validateOperators checks the commands of operators.
func validateOperators(cmd *wire.Command) *wire.Result {
	switch op := cmd.Op.(type) {
	case *wire.Command_ForceRelease:
		return validForce(op.ForceRelease)
	case *wire.Command_Revoke:
		return validRevoke(op.Revoke)
	case *wire.Command_SkipDelay:
		return cmp.Or(validName(op.SkipDelay.GetName()), validReason(op.SkipDelay))
	case *wire.Command_Resize:
		return validResize(op.Resize)
	case *wire.Command_ForceClose:
		return validForceClose(op.ForceClose)
	case *wire.Command_RestoreBackup:
		return validBackup(op.RestoreBackup)
	case *wire.Command_RecordAct:
		return validRecordAct(op.RecordAct)
	case *wire.Command_SetPolicy:
		return cmp.Or(validPolicy(op.SetPolicy.GetPolicy()), validReason(op.SetPolicy))
	case *wire.Command_CreateToken:
		return validToken(op.CreateToken)
	case *wire.Command_RevokeToken:
		return cmp.Or(validText("the id", op.RevokeToken.GetTokenId(), tokenIDBytes), validReason(op.RevokeToken))
	}
	return unknownOperation()
}

func unknownOperation() *wire.Result {
	return invalid("the command has no operation that this level knows")
}

func validName(name string) *wire.Result {
	if err := wire.ValidName(name); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// validText checks a text for people of at most so many bytes.
func validText(what, text string, most int) *wire.Result {
	if len(text) > most {
		return invalid("%s has %d bytes: at most %d are allowed", what, len(text), most)
	}
	if err := wire.ValidText(what, text); err != nil {
		return invalid("%v", err)
	}
	return nil
}

func validForce(op *wire.ForceRelease) *wire.Result {
	return validReason(op)
}

func validForceClose(op *wire.ForceClose) *wire.Result {
	if op.GetIdentity() == "" {
		return validReason(op)
	}
	if op.SessionId != 0 {
		return invalid("give session_id or identity, not both")
	}
	return cmp.Or(validIdentity(op.Identity), validReason(op))
}

func validRevoke(op *wire.Revoke) *wire.Result {
	if op.GetGraceMs() > maxMaxHoldMs {
		return invalid("grace_ms is %d: at most %d is allowed", op.GraceMs, uint32(maxMaxHoldMs))
	}
	return validReason(op)
}

func validResize(op *wire.Resize) *wire.Result {
	if op.GetLimit() == 0 || op.Limit > maxLimit {
		return invalid("the limit is %d: 1 to %d is allowed", op.GetLimit(), uint32(maxLimit))
	}
	return cmp.Or(validName(op.GetName()), validReason(op))
}
