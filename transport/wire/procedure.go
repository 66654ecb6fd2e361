package wire

import "google.golang.org/protobuf/proto"

// CommandOf returns the command that a numbered request over HTTP becomes, without the id of its session. It returns nil
// for any other message.
func CommandOf(request proto.Message) *Command {
	switch m := request.(type) {
	case *AcquireRequest:
		return numbered(m, &Command_Acquire{Acquire: &Acquire{
			Locks: m.requestedLocks(), Owner: m.GetOwner(), WaitMs: m.GetWaitMs(), WaitForever: m.GetWaitForever(), Value: m.GetValue(),
			Order: m.GetOrder(), Reentrant: m.GetReentrant(), MaxHoldMs: m.GetMaxHoldMs(), LockDelayMs: m.GetLockDelayMs(),
			Notify: m.GetNotify(), AllowDeadlock: m.GetAllowDeadlock(),
		}})
	case *UpgradeRequest:
		return numbered(m, &Command_Upgrade{Upgrade: &Upgrade{
			HoldId: m.GetHoldId(), Token: m.GetToken(), WaitMs: m.GetWaitMs(), WaitForever: m.GetWaitForever(), AllowDeadlock: m.GetAllowDeadlock(),
		}})
	case *DowngradeRequest:
		return numbered(m, &Command_Downgrade{Downgrade: &Downgrade{HoldId: m.GetHoldId(), Token: m.GetToken()}})
	case *ExtendRequest:
		return numbered(m, &Command_Extend{Extend: &Extend{HoldId: m.GetHoldId(), Token: m.GetToken(), MaxHoldMs: m.GetMaxHoldMs()}})
	case *SetValueRequest:
		return numbered(m, &Command_SetValue{SetValue: &SetValue{HoldId: m.GetHoldId(), Token: m.GetToken(), Value: m.GetValue()}})
	case *ReleaseRequest:
		return numbered(m, &Command_Release{Release: &Release{HoldId: m.GetHoldId(), Token: m.GetToken()}})
	}
	return nil
}

func numbered(m interface {
	GetSeq() uint64
	GetAckedBelow() uint64
}, op isCommand_Op) *Command {
	return &Command{Seq: m.GetSeq(), AckedBelow: m.GetAckedBelow(), Op: op}
}

// requestedLocks returns the locks, which the request names in one of two ways.
func (m *AcquireRequest) requestedLocks() []*LockRequest {
	if len(m.GetLocks()) > 0 {
		return m.GetLocks()
	}
	return []*LockRequest{{Name: m.GetName(), Mode: m.GetMode(), Permits: m.GetPermits(), Limit: m.GetLimit()}}
}
