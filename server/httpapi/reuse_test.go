package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/internal/pending"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// reusedFor requires that a request was refused because its key was used for another request.
func reusedFor(t *testing.T, r reply, lock string) {
	t.Helper()
	message := r.refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
	if !strings.Contains(r.body, "was used for another request") || lock != "" && !strings.Contains(r.body, lock) {
		t.Errorf("%s: %s", message, r.body)
	}
}

// digestOf returns the digest in the answer to an acquire of one lock.
func digestOf(name string) string {
	return fmt.Sprint((&wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}}}}).Digest())
}

func TestReusedSeqWhileTheFirstRequestWaits(t *testing.T) {
	x := contend(t)
	answered := x.bob.later(t.Context(), forever)
	x.c.queued("a", 1)
	reusedFor(t, x.bob.send("LockService/Acquire", `"seq":1,"name":"b"`), `\"a\"`)
	reusedFor(t, x.bob.send("LockService/Release", `"seq":1,"holdId":"1","token":"1"`), `\"a\"`)
	x.ann.send("LockService/Release", x.release).ok()
	got := soon(t, answered).ok()
	if got["status"] != "GRANTED" || got["name"] != "a" || got["digest"] != digestOf("a") {
		t.Errorf("got %v", got)
	}
	reusedFor(t, x.bob.send("LockService/Acquire", `"seq":1,"name":"b"`), `\"a\"`)
	if again := x.bob.send("LockService/Acquire", `"seq":1,"name":"a"`).ok(); again["token"] != got["token"] {
		t.Errorf("the retry with another wait: %v", again)
	}
}

// TestReusedSeqDoesNotAffectTheFirstRequest abandons a wait and then sends another request with its sequence
// number. The wait is cancelled as usual, and the end of the second request does not end the first.
func TestReusedSeqDoesNotAffectTheFirstRequest(t *testing.T) {
	x := contend(t)
	x.gone(t)
	reusedFor(t, x.bob.send("LockService/Acquire", `"seq":1,"name":"b"`), "")
	x.c.queued("a", 0)

	answered := x.bob.later(t.Context(), `"seq":2,"name":"a","waitForever":true`)
	x.c.queued("a", 1)
	x.p.server.requests.Cancel(pending.Key{Session: x.bob.num, Seq: 2, Digest: 1})
	x.c.queued("a", 1)
	x.ann.send("LockService/Release", x.release).ok()
	if got := soon(t, answered).ok(); got["status"] != "GRANTED" {
		t.Errorf("got %v", got)
	}
}

func TestReusedSecretWhileTheFirstLeaseWaits(t *testing.T) {
	x := contend(t)
	carl := x.p.tenant("carl")
	answered := carl.later(t.Context(), leaseForever)
	x.c.queued("a", 1)
	const other = `"acquire":{"locks":[{"name":"b"}]}`
	reusedFor(t, carl.send("Acquire", other), `\"a\"`)
	x.ann.send("LockService/Release", x.release).ok()
	if got := soon(t, answered).ok(); got["status"] != "GRANTED" || got["name"] != "a" || got["digest"] == "0" {
		t.Errorf("got %v", got)
	}
	reusedFor(t, carl.send("Acquire", other), `\"a\"`)
	if r := x.p.post("SessionService/Open", `{`+carl.key+`}`); r.status == http.StatusOK {
		t.Errorf("a session under the lease's secret: %s", r.body)
	}
}

// TestUpgradeNamesWhatItAnswers checks the name and the digest in the answer to an upgrade.
func TestUpgradeNamesWhatItAnswers(t *testing.T) {
	c := newCluster(t)
	ann := start(t, c, "n1").open("ann")
	held := ann.send("LockService/Acquire", `"seq":1,"name":"a","mode":"SHARED"`).ok()
	got := ann.send("LockService/Upgrade", `"seq":2,`+fmt.Sprintf(`"holdId":%q,"token":%q`, held["holdId"], held["token"])).ok()
	asked := &wire.Upgrade{}
	for field, set := range map[string]*uint64{"holdId": &asked.HoldId, "token": &asked.Token} {
		if _, err := fmt.Sscan(held[field].(string), set); err != nil {
			t.Fatal(err)
		}
	}
	want := (&wire.Command{Op: &wire.Command_Upgrade{Upgrade: proto.CloneOf(asked)}}).Digest()
	if got["status"] != "GRANTED" || got["name"] != "a" || got["digest"] != fmt.Sprint(want) {
		t.Errorf("got %v, want digest %d", got, want)
	}
}
