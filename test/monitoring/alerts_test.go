package monitoring_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/disk"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/pki"
)

const (
	// alertTimeout bounds the time from a cause to its alert, and from the end of the cause to that of the alert.
	alertTimeout = time.Minute
	// slowSync is far above the threshold of QuorumlockSlowDisk, and below what makes a leader hand over.
	slowSync = 200 * time.Millisecond
	// slowerSync is above the threshold of QuorumlockSlowCommits.
	slowerSync = 300 * time.Millisecond
	// still is how long a member stands still. The leader asks it once a second and waits for 0.6 s, so at least one answer
	// is late. After that, the member runs for as long, so that it does not count as down.
	still = 1700 * time.Millisecond
	// renewedFor is how long the certificates are valid that expire soon.
	renewedFor = 2 * 24 * time.Hour
	// waiters are more than the threshold of QuorumlockLongestQueue.
	waiters = 1010
)

// incident is something that happens to a cluster, and the alerts by which an operator learns of it.
type incident struct {
	name string
	// alerts must not fire before, must fire because of the cause, and must end with it.
	alerts []string
	// cause causes the incident, and returns how to end it.
	cause func(*scene) (end func())
}

// incidents run one after the other. Those of one step happen at once.
var incidents = [][]incident{
	{
		{"a queue is stuck", []string{"QuorumlockOldestWait", "QuorumlockLongestQueue"}, stuckQueue},
		{"backups fail", []string{"QuorumlockBackupOverdue"}, failingBackups},
		{"a certificate expires soon", []string{"QuorumlockCertificateExpires", "QuorumlockCertificateExpiresNow"}, shortCertificate},
		{"the audit log cannot be opened", []string{"QuorumlockAuditLog"}, missingAuditLog},
		{"too many sessions", []string{"QuorumlockBudget"}, manySessions},
	},
	{
		{"leadership moves often", []string{"QuorumlockLeaderChanges"}, movingLeader},
		{"leases end by their TTL", []string{"QuorumlockSessionsExpire"}, expiringLeases},
	},
	{{"a quota is used up", []string{"QuorumlockQuotaNear", "QuorumlockQuotaFull"}, usedQuota}},
	{{"a slow disk of the leader", []string{"QuorumlockSlowDisk"}, slowDisk}},
	{{"slow disks of the followers", []string{"QuorumlockSlowCommits"}, slowFollowers}},
	{{"a member stands still again and again", []string{"QuorumlockMemberSlow"}, stutteringMember}},
	{{"a member is down", []string{"QuorumlockMemberDown", "QuorumlockNodeNotScraped", "QuorumlockNoFailureTolerance"}, deadMember}},
	{{"a node restarts often", []string{"QuorumlockNodeRestarts"}, restartingNode}},
	{{"no leader", []string{"QuorumlockNoLeader"}, deadMajority}},
	{{"nodes differ", []string{"QuorumlockGrantsSuspended", "QuorumlockStateDiffers"}, divergedStates}},
}

// TestAlertsFire causes what alerts are about, in a cluster under load that a Prometheus scrapes with shortened rules. Each
// alert fires, names a runbook that exists, and ends when its cause has ended.
func TestAlertsFire(t *testing.T) {
	inFull(t)
	needsPrometheus(t)
	if err := disk.NoInjection(); err != nil {
		t.Skip(err)
	}
	stage(t).suffer(incidents)
}

// TestAlarmFires is like TestAlertsFire, for a disk that is rolled back, after which the cluster has lost a node.
func TestAlarmFires(t *testing.T) {
	inFull(t)
	needsPrometheus(t)
	stage(t).suffer([][]incident{{{"a log has forked", []string{"QuorumlockAlarm"}, forkedLog}}})
}

// TestDataDiskFires is like TestAlertsFire, for a node whose disk is a small volume.
func TestDataDiskFires(t *testing.T) {
	inFull(t)
	needsPrometheus(t)
	dir := t.TempDir()
	volume := disk.MountSized(t, filepath.Join(dir, "n2"), 4<<30)
	stageIn(t, dir).suffer([][]incident{{{"a disk fills up", []string{"QuorumlockDataDisk"}, func(s *scene) (end func()) {
		s.t.Helper()
		if err := volume.Take(3 << 30); err != nil {
			s.t.Fatal(err)
		}
		return func() {
			if err := volume.MakeRoom(); err != nil {
				s.t.Error(err)
			}
		}
	}}}})
}

// suffer causes incidents and checks their alerts.
func (s *scene) suffer(steps [][]incident) {
	s.t.Helper()
	pages := readRunbooks(s.t)
	for _, step := range steps {
		var ends []func()
		var alerts []string
		for _, i := range step {
			alerts = append(alerts, i.alerts...)
			s.rests(i.alerts)
			s.t.Log(i.name)
			if end := i.cause(s); end != nil {
				ends = append(ends, end)
			}
		}
		for _, name := range alerts {
			took, fired := s.awaitFiring(name)
			s.t.Logf("%s fired after %v: %s", name, took.Round(100*time.Millisecond), fired.Annotations["summary"])
			if page := strings.TrimSuffix(filepath.Base(fired.Annotations["runbook_url"]), ".md"); pages[page] == "" {
				s.t.Errorf("%s names the runbook %q, which does not exist", name, page)
			}
		}
		for _, end := range ends {
			end()
		}
		s.awaitEnd(alerts)
	}
}

// rests fails the test if one of the alerts fires.
func (s *scene) rests(alerts []string) {
	s.t.Helper()
	firing, err := s.monitor.firing(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, a := range firing {
		if slices.Contains(alerts, a.Labels["alertname"]) {
			s.t.Errorf("before its cause, this fires: %v", a)
		}
	}
}

// fires returns an alert, or an error unless it fires.
func (s *scene) fires(ctx context.Context, name string) (fired alert, err error) {
	firing, err := s.monitor.firing(ctx)
	i := slices.IndexFunc(firing, func(a alert) bool { return a.Labels["alertname"] == name })
	if i < 0 {
		return fired, fmt.Errorf("%d others fire: %v", len(firing), err)
	}
	return firing[i], nil
}

func (s *scene) awaitFiring(name string) (took time.Duration, fired alert) {
	s.t.Helper()
	took = s.Await(name+" fires", alertTimeout, func(ctx context.Context) (err error) {
		fired, err = s.fires(ctx, name)
		return err
	})
	return took, fired
}

func (s *scene) awaitEnd(alerts []string) {
	s.t.Helper()
	s.Await(fmt.Sprintf("the end of %v", alerts), alertTimeout, func(ctx context.Context) error {
		firing, err := s.monitor.firing(ctx)
		for _, a := range firing {
			if slices.Contains(alerts, a.Labels["alertname"]) {
				return fmt.Errorf("%v fires", a)
			}
		}
		return err
	})
}

// stuckQueue lets requests wait for a lock that nobody releases.
func stuckQueue(s *scene) (end func()) {
	s.t.Helper()
	hold, waiter := s.lock("stuck", ""), s.session()
	ctx, cancel := context.WithCancel(s.t.Context())
	var waiting sync.WaitGroup
	for range waiters {
		waiting.Go(func() { _, _ = waiter.Lock(ctx, "stuck") }) // it is given up when the test goes on
	}
	return func() {
		cancel()
		waiting.Wait()
		if err := errors.Join(hold.Unlock(s.t.Context()), waiter.Close(s.t.Context())); err != nil {
			s.t.Error(err)
		}
	}
}

func (s *scene) session() *client.Session {
	s.t.Helper()
	session, err := s.Client().NewSession(s.t.Context(), client.SessionOptions{TTL: 5 * time.Minute})
	if err != nil {
		s.t.Fatal(err)
	}
	return session
}

// lock acquires a lock with a value.
func (s *scene) lock(name, value string) *client.Hold {
	s.t.Helper()
	hold, err := s.session().Lock(s.t.Context(), name, client.WithValue([]byte(value)))
	if err != nil {
		s.t.Fatal(err)
	}
	return hold
}

// failingBackups takes the directory of the leader's backups away. As the runbook says, another leader makes the next at
// once.
func failingBackups(s *scene) (end func()) {
	s.t.Helper()
	leader := s.Leader()
	dir := filepath.Join(s.dir, leader)
	if err := os.Rename(dir, dir+".away"); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		if err := os.Rename(dir+".away", dir); err != nil {
			s.t.Fatal(err)
		}
		s.qlock("cluster", "transfer", "--reason", "repeat the backup")
	}
}

func (s *scene) qlock(args ...string) {
	s.t.Helper()
	if _, err := s.Qlock(s.t.Context(), operator, nil, args...); err != nil {
		s.t.Fatal(err)
	}
}

// shortCertificate gives a node certificates that expire soon.
func shortCertificate(s *scene) (end func()) {
	s.t.Helper()
	renew := func(opts ...pki.Option) {
		if _, err := pki.Renew(s.Certificates(), []string{"n1"}, time.Hour, opts...); err != nil {
			s.t.Fatal(err)
		}
	}
	renew(pki.ValidFor(renewedFor))
	return func() { renew() }
}

// manySessions opens sessions until the cluster has more than 80 % of the limit, with those of the load.
func manySessions(s *scene) (end func()) {
	s.t.Helper()
	sessions := s.open(70)
	return func() {
		for _, session := range sessions {
			if err := session.Close(s.t.Context()); err != nil {
				s.t.Error(err)
			}
		}
	}
}

// movingLeader transfers leadership as often as in an unstable network.
func movingLeader(s *scene) (end func()) {
	s.t.Helper()
	for range 6 {
		s.qlock("cluster", "transfer", "--reason", "test")
		s.Leader()
	}
	return nil
}

// expiringLeases acquires leases that nobody extends.
func expiringLeases(s *scene) (end func()) {
	s.t.Helper()
	for i := range 25 {
		locks := []client.LockSpec{{Name: fmt.Sprintf("expiring/%d", i)}}
		if _, err := s.Client().AcquireLease(s.t.Context(), locks, client.WithTTL(shortestTTL)); err != nil {
			s.t.Fatal(err)
		}
	}
	return nil
}

// restartingNode kills a node and starts it again, several times.
func restartingNode(s *scene) (end func()) {
	s.t.Helper()
	id := s.followers()[0]
	for range 3 {
		s.Kill9(id)
		s.Restart(id)
		s.AwaitAll()
		s.awaitScraped()
	}
	return nil
}

// usedQuota applies a policy with a quota of locks that the load has used up.
func usedQuota(s *scene) (end func()) {
	s.t.Helper()
	policy := filepath.Join(s.t.TempDir(), "policy.yaml")
	text := fmt.Sprintf("bindings:\n  - identity: %s\n    roles: [admin]\nquotas:\n  - prefix: busy/\n    claims: 1\n", operator)
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.qlock("policy", "apply", policy, "--yes", "--reason", "test")
	return func() { s.qlock("policy", "remove", "--yes", "--reason", "test") }
}

// slowDisk delays the syncs of the leader.
func slowDisk(s *scene) (end func()) {
	s.t.Helper()
	injection := s.Inject(s.Leader(), disk.Syncs, disk.Slow(slowSync))
	return func() { injection.Lift() }
}

// slowFollowers delays the syncs of both followers, for one of which each commit waits.
func slowFollowers(s *scene) (end func()) {
	s.t.Helper()
	var injections []*disk.Injection
	for _, id := range s.followers() {
		injections = append(injections, s.Inject(id, disk.Syncs, disk.Slow(slowerSync)))
	}
	return func() {
		for _, i := range injections {
			i.Lift()
		}
	}
}

// stutteringMember stops a follower for a while, again and again, until the alert fires.
func stutteringMember(s *scene) (end func()) {
	s.t.Helper()
	id := s.followers()[0]
	s.Await("a late member is noticed", alertTimeout, func(context.Context) error {
		s.Stop(id)
		s.Pass(still)
		s.Continue(id)
		s.Pass(still)
		_, err := s.fires(s.t.Context(), "QuorumlockMemberSlow")
		return err
	})
	return nil
}

// missingAuditLog takes the directory of a node's audit log away. The load has something to record.
func missingAuditLog(s *scene) (end func()) {
	s.t.Helper()
	dir := filepath.Join(s.dir, "audit-n2")
	if err := os.Rename(dir, dir+".away"); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		if err := os.Rename(dir+".away", dir); err != nil {
			s.t.Fatal(err)
		}
	}
}

// deadMember kills a follower.
func deadMember(s *scene) (end func()) {
	s.t.Helper()
	id := s.followers()[0]
	s.Kill9(id)
	return func() {
		s.Restart(id)
		s.AwaitAll()
	}
}

// deadMajority kills the leader and another node.
func deadMajority(s *scene) (end func()) {
	s.t.Helper()
	leader := s.Leader()
	both := []string{leader, s.Others(leader)[0]}
	s.Kill9(both...)
	return func() {
		s.Restart(both...)
		s.AwaitAll()
	}
}

// divergedStates changes the state of a node while another is down, so that no majority agrees. When that one is back, it
// agrees with the third, and the changed node ends by itself.
func divergedStates(s *scene) (end func()) {
	s.t.Helper()
	const name, sound, wrong = "diverged", "sound", "wrong"
	s.lock(name, sound)
	s.AwaitCaughtUp()
	changed, down := s.followers()[0], s.followers()[1]
	s.Kill9(changed, down)
	process.ForgeLog(s.t, s.DataDir(changed), name, wrong)
	s.Restart(changed)
	return func() {
		s.Restart(down)
		if code := s.Ended(changed); code != 70 {
			s.t.Errorf("%s, whose state was changed, ended with code %d", changed, code)
		}
	}
}

// writtenDown is the time within which nodes write down what they know about others.
const writtenDown = time.Second

// forkedLog restores an old copy of a node's disk while a node is down that knows nothing of it: these two continue from an
// earlier entry than the third, whose log they find to have forked.
func forkedLog(s *scene) (end func()) {
	s.t.Helper()
	knows, back, ignorant := s.Leader(), s.followers()[0], s.followers()[1]
	s.AwaitCaughtUp()
	s.Pass(writtenDown)
	old := s.Copy(back, process.Frozen)
	s.Kill9(ignorant)
	s.lock("lost", "")
	s.Pass(writtenDown)
	s.Kill9(back, knows)
	s.PutBack(back, old)
	s.Restart(ignorant, back)
	s.lock("kept", "")
	s.Restart(knows)
	if code := s.Ended(knows); code != 70 {
		s.t.Errorf("%s, whose log has forked, ended with code %d", knows, code)
	}
	return func() { s.qlock("cluster", "acknowledge", "--reason", "test") }
}
