package diagnosis

import (
	"fmt"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/cmd/qlock/words"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Threshold has the values from which on a finding is a warning or critical. A zero value is never reached.
type Threshold[T int | time.Duration] struct{ Warning, Critical T }

// severity returns that of a value that is bad if it is high.
func (t Threshold[T]) severity(value T) Severity {
	switch {
	case t.Critical > 0 && value >= t.Critical:
		return Critical
	case t.Warning > 0 && value >= t.Warning:
		return Warning
	}
	return OK
}

// Limits are the thresholds of Cluster.
type Limits struct {
	// Down is the number of members that are unreachable.
	Down Threshold[int]
	// Wait is how long the oldest request has waited.
	Wait Threshold[time.Duration]
	// BackupAge is the age of the last verified backup. A backup that is missing by the schedule is a warning in any case.
	BackupAge Threshold[time.Duration]
	// Certificate is how long before the end of a certificate.
	Certificate Threshold[time.Duration]
	// Budget is how much of a limit of the cluster is used, in percent.
	Budget Threshold[int]
}

// DefaultLimits returns the thresholds for clusters about which nothing is known. Waits and the age of backups have none:
// what is normal depends on the locks and on the schedule.
func DefaultLimits() Limits {
	const day = 24 * time.Hour
	return Limits{
		Down:        Threshold[int]{1, 2},
		Certificate: Threshold[time.Duration]{14 * day, 3 * day},
		Budget:      Threshold[int]{80, 95},
	}
}

// Cluster returns what is wrong with a cluster according to its status. oldestWait is the longest wait for a lock.
func Cluster(s *wire.StatusResponse, oldestWait time.Duration, limits Limits, now time.Time) (findings []Finding) {
	if s.GetLeaderId() == "" {
		found(&findings, Critical, "", "there is no leader", "bring up a majority of the voters")
	}
	if s.GetGrantsSuspended() {
		found(&findings, Critical, "", "grants are suspended", "bring the other voters up, or replace the node that is wrong: see qlock status")
	}
	if s.GetDifferingIndex() > s.GetAgreedIndex() {
		found(&findings, Critical, "", fmt.Sprintf("the nodes' states differ after log entry %d", s.GetDifferingIndex()), "save a backup, and report this")
	}
	down(&findings, s, limits.Down)
	for _, n := range s.GetNodes() {
		certificate(&findings, n, limits.Certificate, now)
		for _, a := range n.GetAlarms() {
			found(&findings, Warning, n.GetId(), "alarm: "+words.Printable(a.GetMessage()), words.Printable(a.GetAdvice()))
		}
	}
	backup(&findings, s, limits.BackupAge, now)
	if severity := limits.Wait.severity(oldestWait); severity > OK {
		found(&findings, severity, "", "a request has waited for "+words.Span(oldestWait), "see who holds the lock: qlock contended --by oldest")
	}
	budgets(&findings, s, limits.Budget)
	Sort(findings)
	return findings
}

// Unreachable returns the members that the answering node does not reach.
func Unreachable(s *wire.StatusResponse) (ids []string) {
	for _, n := range s.GetNodes() {
		if !n.GetReachable() {
			ids = append(ids, words.Printable(n.GetId()))
		}
	}
	return ids
}

func down(findings *[]Finding, s *wire.StatusResponse, limit Threshold[int]) {
	ids := Unreachable(s)
	if severity := limit.severity(len(ids)); severity > OK {
		found(findings, severity, "", fmt.Sprintf("%s unreachable: %s", plural(len(ids), "member"), strings.Join(ids, ", ")),
			"start them, or replace them with qlock cluster replace")
	}
}

func certificate(findings *[]Finding, n *wire.NodeStatus, limit Threshold[time.Duration], now time.Time) {
	if n.GetCertificateExpiresUnixMs() == 0 {
		return
	}
	left := time.UnixMilli(n.GetCertificateExpiresUnixMs()).Sub(now)
	do := "renew it with qlock tls renew, and copy it to the node; no restart is needed"
	switch {
	case left <= 0:
		found(findings, Critical, n.GetId(), "a certificate has expired", do)
	case left <= limit.Critical:
		found(findings, Critical, n.GetId(), "a certificate expires in "+words.Span(left), do)
	case left <= limit.Warning:
		found(findings, Warning, n.GetId(), "a certificate expires in "+words.Span(left), do)
	}
}

func backup(findings *[]Finding, s *wire.StatusResponse, limit Threshold[time.Duration], now time.Time) {
	schedule, last := s.GetBackupSchedule(), s.GetLastBackup()
	do := "see the log of the leader"
	switch {
	case schedule.GetOverdue():
		found(findings, Warning, "", "a backup is overdue by the schedule "+words.Printable(schedule.GetSchedule()), do)
	case schedule.GetFailures() > 0:
		found(findings, Warning, "", plural(int(schedule.GetFailures()), "attempt")+" to make a backup failed", do)
	}
	if limit == (Threshold[time.Duration]{}) {
		return
	}
	if last == nil {
		found(findings, Critical, "", "there is no scheduled backup", "start the nodes with --backup-dir")
		return
	}
	age := now.Sub(time.UnixMilli(last.GetUnixMs()))
	if severity := limit.severity(age); severity > OK {
		found(findings, severity, "", "the last backup is "+words.Span(age)+" old", do)
	}
}

// Budget is how much of a limit of the cluster is used.
type Budget struct {
	Name       string
	Used, Most uint64
}

// Percent returns the part in use; 0 without a limit.
func (b Budget) Percent() int {
	if b.Most == 0 {
		return 0
	}
	return int(float64(b.Used) / float64(b.Most) * 100)
}

// Budgets returns the limits of the cluster.
func Budgets(s *wire.StatusResponse) []Budget {
	most := s.GetSettings()
	return []Budget{
		{"sessions", s.GetSessions(), most.GetMaxSessions()},
		{"locks", s.GetLocks(), most.GetMaxLocks()},
		{"state", s.GetStateUnits(), most.GetMaxStateBytes()},
	}
}

func budgets(findings *[]Finding, s *wire.StatusResponse, limit Threshold[int]) {
	flags := map[string]string{"sessions": "--max-sessions", "locks": "--max-locks", "state": "--max-state-bytes"}
	for _, b := range Budgets(s) {
		if severity := limit.severity(b.Percent()); severity > OK {
			found(findings, severity, "", fmt.Sprintf("%d %% of the limit of %s is used (%d of %d)", b.Percent(), flags[b.Name], b.Used, b.Most),
				"find who uses it with qlock quota --all, and set quotas")
		}
	}
}
