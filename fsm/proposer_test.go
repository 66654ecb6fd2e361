package fsm

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// closed returns a machine with a policy that gives nobody anything, except root.
func closed(t *testing.T) *Machine {
	t.Helper()
	m := bootstrapped(t)
	m.state.level = Level // no kind is refused for its level
	setPolicy(t, m, bindings())
	return m
}

// TestWhatNodesMayPropose takes every kind of command and every act from the schema. Whatever the policy, a node may
// propose those that the schema says, and nothing else, and a client none of those that only nodes propose.
func TestWhatNodesMayPropose(t *testing.T) {
	denied := func(cmd *wire.Command) bool {
		t.Helper()
		return applyOne(t, closed(t), cmd).Results[0].Status == wire.Status_PERMISSION_DENIED
	}
	for _, kind := range commandKinds() {
		proposer := ProposerOf(soundCommand(t, kind))
		if proposer == wire.Proposer_PROPOSER_UNSPECIFIED {
			t.Errorf("the schema does not say who proposes %s", kind.Name())
		}
		as := func(change func(*wire.Command)) *wire.Command {
			cmd := soundCommand(t, kind)
			change(cmd)
			return cmd
		}
		if got, want := denied(as(func(c *wire.Command) { c.Node = "n1" })), proposer == wire.Proposer_CLIENT; got != want {
			t.Errorf("%s of a node: refused %v, want %v", kind.Name(), got, want)
		}
		for what, forged := range map[string]func(*wire.Command){
			"the node and a caller":   func(c *wire.Command) { c.Node, c.Caller = "n1", &wire.Caller{Identity: "root"} },
			"the node and a session":  func(c *wire.Command) { c.Node, c.SessionId = "n1", 1 },
			"a caller with that name": func(c *wire.Command) { c.Caller = &wire.Caller{Identity: "node n1"} },
		} {
			if !denied(as(forged)) {
				t.Errorf("%s with %s is not refused", kind.Name(), what)
			}
		}
		if proposer == wire.Proposer_NODE {
			if !denied(as(func(c *wire.Command) { c.Caller = &wire.Caller{Identity: "root"} })) || !denied(as(func(c *wire.Command) { c.SessionId = 1 })) {
				t.Errorf("a client proposes %s", kind.Name())
			}
		}
	}
	values := wire.AuditRecord_UNSPECIFIED.Descriptor().Values()
	var may []string
	for i := range values.Len() {
		act := wire.AuditRecord_Action(values.Get(i).Number())
		for _, outcome := range []wire.Status_Code{wire.Status_UNSPECIFIED, wire.Status_OK} {
			cmd := &wire.Command{Node: "n1", Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{Action: act, Reason: "r", Outcome: outcome}}}
			if denied(cmd) == nodeMayRecord(act) {
				t.Errorf("%v with outcome %v of a node: want %v", act, outcome, nodeMayRecord(act))
			}
		}
		if nodeMayRecord(act) {
			may = append(may, act.String())
		}
	}
	if got, want := fmt.Sprint(may), "[ADD_MEMBER REMOVE_MEMBER]"; got != want {
		t.Errorf("nodes may record %s, want %s", got, want)
	}
}

// TestRecordsNameNodes verifies that a record of what a node did by itself names the node, and that such an identity can
// be that of nothing else: no token, policy, quota or closed session.
func TestRecordsNameNodes(t *testing.T) {
	m := closed(t)
	add := &wire.RecordAct{Action: wire.AuditRecord_ADD_MEMBER, Member: "n4", Operator: "n4", Reason: "joins"}
	if r := applyOne(t, m, &wire.Command{Node: "n4", Op: &wire.Command_RecordAct{RecordAct: add}}).Results[0]; r.Status != wire.Status_OK {
		t.Fatal(r)
	}
	all := m.AuditAfter(0)
	if got := all[len(all)-1].GetCaller(); !proto.Equal(got, &wire.Caller{Identity: "node n4"}) {
		t.Errorf("recorded under %v", got)
	}
	long := strings.Repeat("n", maxNodeBytes+1)
	if r := applyOne(t, m, &wire.Command{Node: long, Op: &wire.Command_RecordAct{RecordAct: add}}).Results[0]; r.Status != wire.Status_INVALID_ARGUMENT {
		t.Error(r)
	}
	for _, name := range []string{"node n4", "node *"} {
		token := &wire.CreateToken{Sha256: secretHash("s"), Name: name, Reason: "r"}
		record := &wire.TokenRecord{Sha256: token.Sha256, Info: &wire.TokenInfo{Id: tokenID(token.Sha256), Name: name}}
		quota := bindings()
		quota.Quotas = []*wire.Quota{{Identity: name, Sessions: 1}}
		for _, cmd := range []*wire.Command{
			{Op: &wire.Command_CreateToken{CreateToken: token}},
			{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{Lineage: "l", Reason: "r", Policy: bindings(), Tokens: []*wire.TokenRecord{record}}}},
			{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: bindings(name, "admin"), Reason: "r"}}},
			{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: quota, Reason: "r"}}},
			{Op: &wire.Command_ForceClose{ForceClose: &wire.ForceClose{Identity: name, Reason: "r"}}},
		} {
			if r := Validate(asCaller("root", cmd), DefaultSettings()); r.GetStatus() != wire.Status_INVALID_ARGUMENT {
				t.Errorf("%v: %v", cmd, r)
			}
		}
	}
}

// TestPoliciesDoNotConcernNodes verifies that a policy that gives everybody everything gives a node nothing more.
func TestPoliciesDoNotConcernNodes(t *testing.T) {
	m := closed(t)
	setPolicy(t, m, bindings("*", "admin"))
	refused := 0
	for _, kind := range commandKinds() {
		cmd := soundCommand(t, kind)
		if ProposerOf(cmd) != wire.Proposer_CLIENT {
			continue
		}
		if cmd.Node = "n1"; applyOne(t, m, cmd).Results[0].Status != wire.Status_PERMISSION_DENIED {
			t.Errorf("a node may propose %s", kind.Name())
		}
		refused++
	}
	if refused < 20 {
		t.Errorf("only %d kinds", refused)
	}
}
