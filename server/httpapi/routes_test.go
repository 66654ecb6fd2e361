package httpapi

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/server/httpapi/callers"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// repeats is what a second execution of a request returns.
type repeats int

const (
	showsTheFirst repeats = iota // the request is known by its number or secret
	onceOnly                     // an outcome different from the first
	changesNothing
)

// probe is a minimal request of a procedure, and the expected effects.
type probe struct {
	// body is appended to the caller's session, if the request names one.
	body string
	// session is set if the request needs a session.
	session bool
	repeats repeats
	// first is the first call it makes to a replica that leads.
	first string
	// good are the statuses allowed in its response; nil if the response has none and OK is good.
	good map[wire.Status_Code]bool
	// numbered is set if the request has a sequence number.
	numbered bool
	// method is set if a method of the replica handles it and returns an error, which it cannot if infallible is set.
	method, infallible bool
	// anywhere is set if any node answers it.
	anywhere bool
}

const someSecret = `"secret":"MDEyMzQ1Njc4OWFiY2RlZg=="`

// probes contains all procedures. TestEveryRouteIsTested compares it with the router.
var probes = map[string]probe{
	"SessionService/Open":      {body: someSecret, first: "OpenSession"},
	"SessionService/Heartbeat": {session: true, repeats: changesNothing, first: "Heartbeat"},
	"SessionService/Close":     {session: true, repeats: onceOnly, first: "CloseSession"},
	"SessionService/List":      {repeats: changesNothing, first: "Prove"},
	"SessionService/Get":       {body: `"sessionId":1`, repeats: changesNothing, first: "Prove"},

	"LockService/Acquire":       {session: true, numbered: true, body: `"seq":7,"name":"a"`, first: "Acquire", good: outcomes},
	"LockService/Upgrade":       {session: true, numbered: true, body: `"seq":7,"holdId":1,"token":1`, first: "Upgrade", good: outcomes},
	"LockService/Release":       {session: true, numbered: true, body: `"seq":7,"holdId":1,"token":1`, first: "Release", good: changed},
	"LockService/Downgrade":     {session: true, numbered: true, body: `"seq":7,"holdId":1,"token":1`, first: "Downgrade", good: changed},
	"LockService/Extend":        {session: true, numbered: true, body: `"seq":7,"holdId":1,"token":1`, first: "Extend", good: changed},
	"LockService/SetValue":      {session: true, numbered: true, body: `"seq":7,"holdId":1,"token":1`, first: "SetValue", good: changed},
	"LockService/Get":           {body: `"name":"a"`, repeats: changesNothing, first: "Prove"},
	"LockService/List":          {repeats: changesNothing, first: "Prove"},
	"LockService/VerifyToken":   {body: `"name":"a","token":1`, repeats: changesNothing, first: "Prove"},
	"LockService/ListDeadlocks": {repeats: changesNothing, first: "Prove"},
	"LockService/ListContended": {repeats: changesNothing, first: "Prove"},
	"LockService/Watch":         {repeats: changesNothing, first: "Watch", method: true, anywhere: true},

	"LeaseService/Acquire": {body: someSecret + `,"acquire":{"locks":[{"name":"a"}]}`, first: "OpenLease", good: outcomes},
	"LeaseService/Extend":  {body: someSecret + `,"holdId":1`, first: "ExtendLease", good: changed},
	"LeaseService/Release": {body: someSecret, repeats: onceOnly, first: "ReleaseLease", good: changed},

	"OperatorService/ForceRelease": {body: `"reason":"r"`, repeats: onceOnly, first: "ForceRelease", good: operated},
	"OperatorService/Revoke":       {body: `"reason":"r"`, repeats: onceOnly, first: "Revoke", good: operated},
	"OperatorService/SkipDelay":    {body: `"name":"a","reason":"r"`, repeats: onceOnly, first: "SkipDelay", good: operated},
	"OperatorService/Resize":       {body: `"name":"a","reason":"r"`, repeats: onceOnly, first: "Resize", good: operated},
	"OperatorService/ForceClose":   {body: `"reason":"r"`, repeats: onceOnly, first: "ForceClose", good: operated},
	"OperatorService/ListAudit":    {repeats: changesNothing, first: "Prove"},
	"OperatorService/SaveSnapshot": {body: `"reason":"r"`, repeats: changesNothing, first: "SaveSnapshot", method: true},
	"OperatorService/Restore":      {body: `"reason":"r"`, repeats: onceOnly, first: "Restore", method: true},

	"ClusterService/Status":             {repeats: changesNothing, first: "Status", method: true},
	"ClusterService/ListSamples":        {repeats: changesNothing, first: "Samples", method: true, infallible: true, anywhere: true},
	"ClusterService/AddMember":          {body: `"id":"n9"`, repeats: onceOnly, first: "AddMember", method: true},
	"ClusterService/RemoveMember":       {body: `"id":"n9"`, repeats: onceOnly, first: "RemoveMember", method: true},
	"ClusterService/SetDrained":         {body: `"id":"n9"`, repeats: onceOnly, first: "SetDrained", method: true},
	"ClusterService/TransferLeadership": {body: `"id":"n9"`, repeats: onceOnly, first: "TransferLeadership", method: true},
	"ClusterService/AcknowledgeAlarms":  {body: `"reason":"r"`, repeats: onceOnly, first: "AcknowledgeAlarms", method: true},

	"AccessService/WhoAmI":      {repeats: changesNothing, first: "Prove"},
	"AccessService/GetPolicy":   {repeats: changesNothing, first: "Prove"},
	"AccessService/SetPolicy":   {body: `"reason":"r"`, repeats: onceOnly, first: "SetPolicy", good: operated},
	"AccessService/TestPolicy":  {body: `"identity":"ann","verb":"AUDIT"`, repeats: changesNothing, first: "Prove"},
	"AccessService/CreateToken": {body: `"name":"ann","authToken":"ql_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","reason":"r"`, first: "CreateToken"},
	"AccessService/GetQuota":    {repeats: changesNothing, first: "Prove"},
	"AccessService/ListTokens":  {repeats: changesNothing, first: "Prove"},
	"AccessService/RevokeToken": {body: `"tokenId":"012345678901","reason":"r"`, repeats: onceOnly, first: "RevokeToken", good: operated},
}

// others are the remaining routes, with their method and whether they are open to callers without a
// certificate.
var others = map[string]struct {
	method string
	open   bool
}{
	healthPrefix:     {http.MethodPost, true},
	"/healthz":       {http.MethodGet, true},
	"/readyz":        {http.MethodGet, true},
	"/metrics":       {http.MethodGet, false},
	openAPIPath:      {http.MethodGet, false},
	reflectionPrefix: {http.MethodPost, false},
	"/":              {http.MethodGet, true},
	"/ui":            {http.MethodGet, true},
	"/ui/":           {http.MethodGet, true},
}

func TestEveryRouteIsTested(t *testing.T) {
	play(t, func(st *stage) {
		for path, route := range st.s.routes {
			name, ours := strings.CutPrefix(path, "/quorumlock.v1.")
			if _, known := probes[name]; known != ours {
				t.Errorf("%s is among the probes: %v", path, known)
			}
			if other, known := others[path]; known == ours || known && (route.open != other.open || route.method != other.method) {
				t.Errorf("%s: %+v, listed: %v", path, route, known)
			}
			if route.name != path {
				t.Errorf("%s is named %s", path, route.name)
			}
		}
		if len(st.s.routes) != len(probes)+len(others) {
			t.Errorf("%d routes, %d tested", len(st.s.routes), len(probes)+len(others))
		}
	})
}

// eachProcedure runs a scene for every procedure.
func eachProcedure(t *testing.T, scene func(st *stage, procedure string, p probe), change ...func(*Config)) {
	eachOf(t, func(string, probe) bool { return true }, scene, change...)
}

// eachOf runs a scene for the wanted procedures.
func eachOf(t *testing.T, wanted func(string, probe) bool, scene func(st *stage, procedure string, p probe), change ...func(*Config)) {
	for procedure, p := range probes {
		if !wanted(procedure, p) {
			continue
		}
		t.Run(procedure, func(t *testing.T) {
			play(t, func(st *stage) { scene(st, procedure, p) }, change...)
		})
	}
}

// full returns the request of a probe, with ann's session.
func (p probe) full(ann *visitor) string {
	if p.session {
		return "{" + ann.creds + strings.TrimSuffix(","+p.body, ",") + "}"
	}
	return "{" + p.body + "}"
}

func TestEveryProcedureAtTheGate(t *testing.T) {
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		body := p.full(st.open("ann"))
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut} {
			got := st.ask(procedure, body, func(r *http.Request) { r.Method = method }).reply()
			if got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != http.MethodPost || got.fields()["code"] != "unimplemented" {
				t.Errorf("%s: %d %v %s", method, got.status, got.header, got.body)
			}
		}
		for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"} {
			got := st.ask(procedure, body, func(r *http.Request) { r.Header.Set("Content-Type", kind) }).reply()
			if got.status != http.StatusUnsupportedMediaType || !strings.Contains(got.header.Get("Accept-Post"), "application/json") {
				t.Errorf("%q: %d %v %s", kind, got.status, got.header, got.body)
			}
		}
		st.none()
		for _, broken := range []string{"", "{", `{"nosuchfield":1}`, `[]`} {
			got := st.ask(procedure, broken).reply()
			if got.status != http.StatusBadRequest || got.fields()["code"] != "invalid_argument" {
				t.Errorf("%q: %d %s", broken, got.status, got.body)
			}
		}
		st.none()
	})
}

// TestEveryRouteAsksForACertificate verifies that, if certificates are required, only health is answered
// without one.
func TestEveryRouteAsksForACertificate(t *testing.T) {
	play(t, func(st *stage) {
		st.s.callers = callers.New(callers.Config{Source: st.node, Require: true})
		cert := &x509.Certificate{SerialNumber: big.NewInt(1), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, Subject: pkix.Name{CommonName: "app"}}
		shown := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}, VerifiedChains: [][]*x509.Certificate{{cert}}}
		for path, route := range st.s.routes {
			for _, state := range []*tls.ConnectionState{nil, {}, shown} {
				r, err := http.NewRequest(http.MethodDelete, "http://n1"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.TLS = state
				want := http.StatusUnauthorized
				if route.open || state == shown {
					want = http.StatusMethodNotAllowed
				}
				if got := st.request(r).reply(); got.status != want {
					t.Errorf("%s, certificate %v: %d %s", path, state == shown, got.status, got.body)
				}
			}
		}
		st.none()
	})
}

// TestBodiesUpToTheLimit verifies that a body may be as long as the limit but no longer, and is read before
// anything is done.
func TestBodiesUpToTheLimit(t *testing.T) {
	const most = 1 << 10
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		limit := most
		switch procedure {
		case "OperatorService/Restore", "AccessService/SetPolicy", "AccessService/TestPolicy":
			limit = maxRestoreBytes
		}
		body := p.full(st.open("ann"))
		fits := body + strings.Repeat(" ", limit-len(body))
		for _, known := range []bool{true, false} {
			unknown := func(r *http.Request) {
				if !known {
					r.ContentLength = -1
				}
			}
			if got := st.ask(procedure, fits+" ", unknown).reply(); got.status != http.StatusRequestEntityTooLarge || !strings.Contains(got.body, "bytes") {
				t.Errorf("one byte too many: %d %s", got.status, got.body)
			}
			st.none()
			a := st.ask(procedure, fits, unknown)
			st.expect(p.first).withdraw()
			if got := a.reply(); got.status == http.StatusRequestEntityTooLarge {
				t.Errorf("refused at the limit: %s", got.body)
			}
		}
	}, limits(func(l *Limits) { l.MaxBodyBytes = most }))
}

// withdraw answers a call that is irrelevant to the scene.
func (s *step) withdraw() {
	if s.orders != nil {
		s.returns(nil, errBroken)
		return
	}
	s.is(&wire.Result{Status: wire.Status_RESOURCE_EXHAUSTED})
}

// give makes the replica refuse everything.
func (st *stage) give() {
	for {
		synctest.Wait()
		s := st.node.next()
		if s == nil {
			return
		}
		s.withdraw()
	}
}

// TestBodyTimeout verifies that the timeout of a body starts with the request's headers and ends with the
// body.
func TestBodyTimeout(t *testing.T) {
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		slow := &slowBody{rest: p.full(st.open("ann")), more: make(chan struct{})}
		a := st.ask(procedure, "", func(r *http.Request) { r.Body, r.ContentLength = slow, int64(len(slow.rest)) })
		slow.asked = a
		a.waits()
		if left := time.Until(a.readUntil); left != st.s.cfg.Limits.BodyTimeout {
			t.Errorf("the body has %v", left)
		}
		time.Sleep(st.s.cfg.Limits.BodyTimeout)
		close(slow.more)
		got := a.reply()
		if got.status != http.StatusRequestTimeout || got.header.Get("Connection") != "close" || got.fields()["code"] != "deadline_exceeded" {
			t.Errorf("got %d %v %s", got.status, got.header, got.body)
		}
		if !strings.Contains(st.log.String(), "did not arrive") {
			t.Errorf("log: %s", st.log)
		}
		st.none()
		a = st.ask(procedure, p.full(st.open("ann")))
		first := st.expect(p.first)
		if !a.readUntil.IsZero() {
			t.Error("the time of the body bounds the request")
		}
		first.withdraw()
		st.give()
	})
}

// slowBody arrives when more is closed, unless its deadline passes first.
type slowBody struct {
	rest  string
	more  chan struct{}
	asked *asked
}

func (b *slowBody) Read(p []byte) (int, error) {
	<-b.more
	if until := b.asked.readUntil; !until.IsZero() && !time.Now().Before(until) {
		return 0, errTimeout{}
	}
	return strings.NewReader(b.rest).Read(p)
}

func (b *slowBody) Close() error { return nil }

type errTimeout struct{}

func (errTimeout) Error() string { return "i/o timeout" }
func (errTimeout) Timeout() bool { return true }

func TestPathsThatAreNotThere(t *testing.T) {
	play(t, func(st *stage) {
		for _, path := range []string{"/nothing", "/quorumlock.v1.LockService/acquire", "/quorumlock.v1.LockService/", "/healthz/", "/metrics/x"} {
			r, err := http.NewRequest(http.MethodPost, "http://n1"+path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			got := st.request(r).reply()
			var answer problem
			if err := json.Unmarshal([]byte(got.body), &answer); err != nil || got.status != http.StatusNotFound || !strings.Contains(answer.Message, path) {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
			if !slices.Equal(answer.Procedures, procedures) || got.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s lists %v", path, answer.Procedures)
			}
		}
	})
}
