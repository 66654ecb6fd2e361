package main

import (
	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func listAudit(m *fsm.Machine, req *wire.ListAuditRequest) *wire.ListAuditResponse { return nil }
