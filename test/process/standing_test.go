package process_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// standing is the part of a node's state that a restore replaces.
type standing struct {
	lineage, settings, audit string
	token                    uint64
}

// backup is the content of a backup file, with the request that restores it without qlock.
type backup struct {
	standing
	path    string
	request *wire.RestoreRequest
	floor   uint64 // smallest possible token of a cluster after the restore
}

// since sets the floor for a restore that begins at that time. The floor increases with every second relative
// to the backup's token, so that a missing floor is noticed.
func (b backup) since(started time.Time) backup {
	b.floor = b.token + 1<<32 + uint64(started.Unix())<<20
	return b
}

func readBackup(t *testing.T, path string) backup {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := fsm.Restore(f, fsm.Level)
	if err != nil {
		t.Fatal(err)
	}
	newestFirst := m.ListAudit(&wire.ListAuditRequest{PageSize: 1000}).GetRecords()
	return backup{
		standing{m.Lineage(), settingsText(m.Settings()), auditText(newestFirst), m.Token()}, path,
		&wire.RestoreRequest{Backup: &wire.Backup{ClusterId: m.ClusterID(), Revision: m.Revision(), Token: m.Token()}, Settings: m.Settings(), Audit: newestFirst}, 0,
	}
}

func settingsText(s *wire.Settings) string {
	return fmt.Sprint(s.GetMaxSessions(), s.GetMaxLocks(), s.GetMinTtlMs(), s.GetMaxTtlMs(), s.GetDefaultTtlMs(), s.GetMaxWaitersPerLock(),
		s.GetMaxClaimsPerSession(), s.GetMaxWindow(), s.GetMaxValueBytes(), s.GetMaxClientInfoBytes())
}

// auditText formats the records, oldest first.
func auditText(newestFirst []*wire.AuditRecord) (text string) {
	for _, r := range newestFirst {
		text = fmt.Sprint(r.GetAction(), " ", r.GetLock(), " because of ", r.GetReason(), "; ") + text
	}
	return text
}

// restoreRecord returns what a restore adds to the audit, after the records that it imports.
func restoreRecord(reason string) string {
	return auditText([]*wire.AuditRecord{{Action: wire.AuditRecord_RESTORE, Reason: reason}})
}

// alike waits until all nodes have the same state, each asked for its own.
func (r *restores) alike() (all standing) {
	r.t.Helper()
	r.c.Await("nodes that are alike", process.WaitTimeout, func(ctx context.Context) (err error) {
		revision := uint64(0)
		for i, id := range r.c.IDs() {
			one, at, err := stands(ctx, r.c.HTTP(id))
			if err != nil {
				return err
			}
			if i > 0 && (one != all || at != revision) {
				return fmt.Errorf("%s has %+v at revision %d, and others %+v at %d", id, one, at, all, revision)
			}
			all, revision = one, at
		}
		return nil
	})
	return all
}

// plain calls nodes over HTTP and keeps no connection.
var plain = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// stands returns one node's state and its revision.
func stands(ctx context.Context, base string) (s standing, revision uint64, err error) {
	status, err := wireconnect.NewClusterServiceClient(plain, base).Status(ctx, connect.NewRequest(&wire.StatusRequest{Stale: true}))
	if err != nil {
		return standing{}, 0, err
	}
	audit, err := wireconnect.NewOperatorServiceClient(plain, base).ListAudit(ctx, connect.NewRequest(&wire.ListAuditRequest{Stale: true, PageSize: 1000}))
	if err != nil {
		return standing{}, 0, err
	}
	m := status.Msg
	if audit.Msg.GetNextPageToken() != "" {
		return standing{}, 0, errors.New("there are more audit records")
	}
	return standing{m.GetLineage(), settingsText(m.GetSettings()), auditText(audit.Msg.GetRecords()), m.GetToken()}, m.GetRevision(), nil
}

// outcome is what an operator knows about a restore afterwards.
type outcome string

const (
	done    outcome = "done"
	notDone outcome = "not done"
	unknown outcome = "unknown"
)

// answer is the answer to an operator.
type answer struct {
	outcome outcome
	text    string
}

func (a answer) String() string { return fmt.Sprintf("%s (%s)", a.outcome, strings.TrimSpace(a.text)) }

// ask restores a backup into the cluster with that ID, with qlock or through one node's HTTP port.
func (r *restores) ask(id string, byHand bool, b backup, cluster, reason string) answer {
	ctx, cancel := context.WithTimeout(r.t.Context(), process.WaitTimeout)
	defer cancel()
	if byHand {
		return restoreByHand(ctx, r.c.Endpoints(), b, cluster, reason)
	}
	return restoreAt(ctx, r.c.HTTP(id), b, cluster, reason)
}

func restoreByHand(ctx context.Context, endpoints []string, b backup, cluster, reason string) answer {
	out, err := programs.Qlock(ctx, "--endpoints", strings.Join(endpoints, ","), "snapshot", "restore", b.path, "--replace", cluster, "--reason", reason)
	switch {
	case err == nil:
		return answer{done, out}
	case strings.Contains(err.Error(), "exit code 69") && strings.Contains(err.Error(), "outcome of the restore is unknown"):
		return answer{unknown, err.Error()}
	}
	return answer{notDone, err.Error()}
}

func restoreAt(ctx context.Context, base string, b backup, cluster, reason string) answer {
	req := &wire.RestoreRequest{Backup: b.request.Backup, Settings: b.request.Settings, Audit: b.request.Audit, Reason: reason, Operator: "test", ClusterId: cluster}
	resp, err := wireconnect.NewOperatorServiceClient(plain, base).Restore(ctx, connect.NewRequest(req))
	if err == nil {
		return answer{done, protojson.Format(resp.Msg)}
	}
	status := wire.Status_UNCERTAIN // the node died before it answered
	if errors.Is(err, syscall.ECONNREFUSED) {
		status = wire.Status_UNAVAILABLE // or before it received the request
	}
	if failure, ok := errors.AsType[*connect.Error](err); ok {
		for _, d := range failure.Details() {
			if value, err := d.Value(); err == nil {
				status = value.(*wire.ErrorDetail).GetStatus()
			}
		}
	}
	if status == wire.Status_UNCERTAIN {
		return answer{unknown, err.Error()}
	}
	return answer{notDone, status.String() + ": " + err.Error()}
}
