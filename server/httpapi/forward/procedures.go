package forward

import "github.com/quorumlock/quorumlock/transport/wire/wireconnect"

// once are the procedures whose second execution does not return the outcome of the first, because they have
// no sequence number.
var once = map[string]bool{
	wireconnect.SessionServiceCloseProcedure:              true,
	wireconnect.LeaseServiceReleaseProcedure:              true,
	wireconnect.OperatorServiceForceReleaseProcedure:      true,
	wireconnect.OperatorServiceRevokeProcedure:            true,
	wireconnect.OperatorServiceSkipDelayProcedure:         true,
	wireconnect.OperatorServiceResizeProcedure:            true,
	wireconnect.OperatorServiceForceCloseProcedure:        true,
	wireconnect.OperatorServiceRestoreProcedure:           true,
	wireconnect.ClusterServiceAddMemberProcedure:          true,
	wireconnect.ClusterServiceRemoveMemberProcedure:       true,
	wireconnect.ClusterServiceSetDrainedProcedure:         true,
	wireconnect.ClusterServiceTransferLeadershipProcedure: true,
	wireconnect.ClusterServiceAcknowledgeAlarmsProcedure:  true,
	wireconnect.AccessServiceSetPolicyProcedure:           true,
	wireconnect.AccessServiceRevokeTokenProcedure:         true,
}

// readOnly are the read-only procedures, whose outcome is never uncertain.
var readOnly = map[string]bool{
	wireconnect.SessionServiceHeartbeatProcedure:     true,
	wireconnect.SessionServiceListProcedure:          true,
	wireconnect.SessionServiceGetProcedure:           true,
	wireconnect.LockServiceGetProcedure:              true,
	wireconnect.LockServiceListProcedure:             true,
	wireconnect.LockServiceVerifyTokenProcedure:      true,
	wireconnect.LockServiceListDeadlocksProcedure:    true,
	wireconnect.LockServiceListContendedProcedure:    true,
	wireconnect.OperatorServiceListAuditProcedure:    true,
	wireconnect.OperatorServiceSaveSnapshotProcedure: true,
	wireconnect.ClusterServiceStatusProcedure:        true,
	wireconnect.ClusterServiceListSamplesProcedure:   true,
	wireconnect.AccessServiceWhoAmIProcedure:         true,
	wireconnect.AccessServiceGetPolicyProcedure:      true,
	wireconnect.AccessServiceTestPolicyProcedure:     true,
	wireconnect.AccessServiceListTokensProcedure:     true,
	wireconnect.AccessServiceGetQuotaProcedure:       true,
}
