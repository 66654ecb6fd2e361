package model

import (
	"crypto/sha256"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// fault returns what is wrong with a command regardless of the state; 0 if nothing is.
func (d *Model) fault(cmd *wire.Command) wire.Status_Code {
	if len(cmd.Acked) > int(d.Limits.GetMaxWindow()+d.Limits.GetMaxClaimsPerSession()) {
		return wire.Status_INVALID_ARGUMENT
	}
	if status := d.tooLong(cmd); status != 0 {
		return status
	}
	if !validCaller(cmd.Caller) || !d.wellFormed(cmd) {
		return wire.Status_INVALID_ARGUMENT
	}
	if op := cmd.GetAcquireCached(); op != nil {
		return d.faultOfCached(op)
	}
	return 0
}

// tooLong returns the fault of a command that exceeds one of the cluster's limits.
func (d *Model) tooLong(cmd *wire.Command) wire.Status_Code {
	value, client := cmd.GetAcquire().GetValue(), cmd.GetOpenSession().GetClient()
	switch op := cmd.Op.(type) {
	case *wire.Command_SetValue:
		value = op.SetValue.GetValue()
	case *wire.Command_OpenLease:
		value, client = op.OpenLease.GetAcquire().GetValue(), op.OpenLease.GetClient()
		if len(op.OpenLease.GetOwnerValue()) > 0 {
			value = op.OpenLease.OwnerValue
		}
	case *wire.Command_ChangeKeys:
		value = op.ChangeKeys.GetValue()
		if a := op.ChangeKeys.GetAction(); a == wire.ChangeKeys_ACQUIRE || a == wire.ChangeKeys_ACQUIRE_OR_EXTEND {
			client = op.ChangeKeys.GetClient()
		}
	case *wire.Command_Bootstrap:
		if len(op.Bootstrap.GetMembers()) > 64 {
			return wire.Status_RESOURCE_EXHAUSTED
		}
	}
	if len(value) > int(d.Limits.GetMaxValueBytes()) || proto.Size(client) > int(d.Limits.GetMaxClientInfoBytes()) {
		if validCaller(cmd.Caller) && d.wellFormed(cmd) { // otherwise it is INVALID_ARGUMENT
			return wire.Status_RESOURCE_EXHAUSTED
		}
	}
	return 0
}

func (d *Model) wellFormed(cmd *wire.Command) bool {
	switch op := cmd.Op.(type) {
	case nil:
		return false
	case *wire.Command_Acquire:
		return cmd.Seq > 0 && validAcquire(op.Acquire)
	case *wire.Command_Extend:
		return cmd.Seq > 0 && validMaxHold(op.Extend.GetMaxHoldMs())
	case *wire.Command_AcquireCached, *wire.Command_Release, *wire.Command_Cancel, *wire.Command_SetValue, *wire.Command_Upgrade, *wire.Command_Downgrade:
		return cmd.Seq > 0
	case *wire.Command_OpenSession:
		return d.validOpen(op.OpenSession.GetSecretHash(), op.OpenSession.GetTtlMs(), d.Limits.GetMaxTtlMs(), op.OpenSession.GetClient())
	case *wire.Command_AttachSession:
		return validHash(op.AttachSession.GetSecretHash()) && readable(op.AttachSession.GetAddress(), 256)
	case *wire.Command_ChangeKeys:
		return d.validKeys(op.ChangeKeys)
	case *wire.Command_RecordRemaining:
		return len(op.RecordRemaining.GetKeys()) <= 1024
	case *wire.Command_OpenLease:
		if len(op.OpenLease.GetOwnerValue()) > 0 {
			return d.validKeyLease(op.OpenLease)
		}
		return d.validOpen(op.OpenLease.GetSecretHash(), op.OpenLease.GetTtlMs(), d.Limits.GetMaxLeaseTtlMs(), op.OpenLease.GetClient()) && validAcquire(op.OpenLease.GetAcquire())
	case *wire.Command_ExtendLease:
		return validHash(op.ExtendLease.GetSecretHash()) && d.validTTL(op.ExtendLease.GetTtlMs(), d.Limits.GetMaxLeaseTtlMs())
	case *wire.Command_ConfirmLease:
		return validHash(op.ConfirmLease.GetSecretHash())
	case *wire.Command_ReleaseLease:
		return validHash(op.ReleaseLease.GetSecretHash())
	}
	return governed(cmd)
}

// governed is wellFormed for commands that do not belong to a session.
func governed(cmd *wire.Command) bool {
	switch op := cmd.Op.(type) {
	case *wire.Command_Bootstrap:
		return validBootstrap(op.Bootstrap)
	case *wire.Command_BeginTerm:
		return op.BeginTerm.GetTerm() > 0 && readable(op.BeginTerm.GetLeaderId(), 512)
	case *wire.Command_PutMember:
		return validMember(op.PutMember.GetMember())
	case *wire.Command_DropMember:
		return readable(op.DropMember.GetId(), 512)
	case *wire.Command_ForceRelease:
		return wellPut(op.ForceRelease)
	case *wire.Command_Revoke:
		return op.Revoke.GetGraceMs() <= 1<<31 && wellPut(op.Revoke)
	case *wire.Command_SkipDelay:
		return validName(op.SkipDelay.GetName()) && wellPut(op.SkipDelay)
	case *wire.Command_Resize:
		limit := op.Resize.GetLimit()
		return limit > 0 && limit <= 1<<31 && validName(op.Resize.GetName()) && wellPut(op.Resize)
	case *wire.Command_ForceClose:
		return validClose(op.ForceClose) && wellPut(op.ForceClose)
	case *wire.Command_RestoreBackup:
		r := op.RestoreBackup
		return r.GetLineage() != "" && readable(r.GetLineage(), 64) && readable(r.GetClusterId(), 512) && validBackup(r.GetBackup()) &&
			limitsFrom(r.GetSettings()) != nil && canBeRestored(r.GetAudit()) && wellPut(r) &&
			validAccess(r.GetPolicy(), r.GetTokens())
	case *wire.Command_SetPolicy:
		return validPolicy(op.SetPolicy.GetPolicy()) && wellPut(op.SetPolicy)
	case *wire.Command_CreateToken:
		t := op.CreateToken
		return validToken(t.GetSha256(), t.GetName(), t.GetEndsUnixMs()) && wellPut(t)
	case *wire.Command_RevokeToken:
		return readable(op.RevokeToken.GetTokenId(), 12) && wellPut(op.RevokeToken)
	case *wire.Command_RecordBackup:
		b := op.RecordBackup.GetBackup()
		return b.GetName() != "" && readable(b.Name, 512) && b.NodeId != "" && readable(b.NodeId, 512) && readable(b.Lineage, 64) &&
			b.UnixMs >= 0 && b.UnixMs < 253402300800000
	case *wire.Command_RecordAct:
		r := op.RecordAct
		return (aroundTheCluster[r.GetAction()] || ofMembers[r.GetAction()] || r.GetAction() == wire.AuditRecord_ACKNOWLEDGE_ALARMS) && validRecord(aboutMember(r)) && (r.GetOutcome() == 0 || aroundTheCluster[r.GetAction()]) && wellPut(r)
	}
	return true
}

// readable reports whether a text can be displayed and has no more than most bytes.
func readable(text string, most int) bool {
	return len(text) <= most && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

func validHash(hash []byte) bool { return len(hash) == sha256.Size }

func (d *Model) validTTL(ttl, longest uint32) bool {
	return ttl == 0 || ttl >= d.Limits.GetMinTtlMs() && ttl <= longest
}

func (d *Model) validOpen(hash []byte, ttl, longest uint32, client *wire.ClientInfo) bool {
	return validHash(hash) && d.validTTL(ttl, longest) && validClient(client)
}

func validClient(client *wire.ClientInfo) bool {
	const any = 1 << 20
	for _, l := range client.GetLabels() {
		if !readable(l.GetKey(), any) || !readable(l.GetValue(), any) {
			return false
		}
	}
	return readable(client.GetAddress(), 256) &&
		readable(client.GetName()+client.GetHostName()+client.GetBootId(), any)
}

func validBootstrap(op *wire.Bootstrap) bool {
	known := map[string]bool{}
	for _, m := range op.GetMembers() {
		if !validMember(m) || known[m.Id] || known["of "+m.Incarnation] {
			return false
		}
		known[m.Id], known["of "+m.Incarnation] = true, m.Incarnation != ""
		if m.Level != 0 && m.Level < levelOfLimits(op.Settings) {
			return false
		}
	}
	return op.GetClusterId() != "" && readable(op.ClusterId, 512) && readable(op.Lineage, 64) &&
		op.TokenFloor <= highestFloor && op.TokenFloor <= clock(op.ClockUnixMs)+aYear && limitsFrom(op.Settings) != nil
}
