//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// policyFile returns a file with the YAML form of a policy.
func policyFile(t *testing.T, policy *wire.Policy) string {
	t.Helper()
	text, err := policyYAML(policy)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "policy.yaml", text)
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPolicyFileIsRead checks that a policy that is shown is read as it was, whatever texts it has.
func TestPolicyFileIsRead(t *testing.T) {
	odd := examplePolicy()
	odd.Bindings = append(odd.Bindings, &wire.Binding{Identity: "cn:a \u202eb\u2028 \\u0041 'é' \"x\": #1", Roles: []string{"user"}},
		&wire.Binding{Identity: "a\u202eb", Roles: []string{"user"}}, &wire.Binding{Identity: "42", Roles: []string{"reader"}}, &wire.Binding{Identity: "*", Roles: []string{"reader"}}, &wire.Binding{Identity: "true", Roles: []string{"reader"}})
	for name, policy := range map[string]*wire.Policy{"the example": examplePolicy(), "odd texts": odd} {
		f := answering(t)
		f.access.policy = always[*wire.GetPolicyRequest](&wire.GetPolicyResponse{Policy: policy, Revision: 7})
		shown := execTest(t, f.dialer, "policy", "show")
		checkEscaped(t, name, shown.out)
		if again, err := parsePolicy([]byte(shown.out)); err != nil || !proto.Equal(again, policy) {
			t.Errorf("%s: %v, %v from\n%s", name, again, err, shown.out)
		}
	}
	f := answering(t)
	f.access.policy = always[*wire.GetPolicyRequest](&wire.GetPolicyResponse{})
	if got := execTest(t, f.dialer, "policy", "show"); got.out != "# policy: none: every client may do everything; see qlock policy --help\n" {
		t.Errorf("%+v", got)
	}
}

// TestPolicyFilesThatAreWrong checks that each mistake is reported with its line, before anything is sent.
func TestPolicyFilesThatAreWrong(t *testing.T) {
	const bindings = "bindings:\n  - identity: a\n    roles: [admin]\n"
	for text, says := range map[string]string{
		"":                            "no roles and no bindings: bind at least one identity to a role with the verb policy",
		"# nothing\n":                 "no roles and no bindings",
		"roles: []\n":                 "no roles and no bindings",
		"rols:\n":                     "line 1: unknown key rols",
		"\ntext\n":                    "line 2: a policy has the keys roles, bindings and quotas",
		"roles: 7\n":                  "line 1: the value `7` does not fit here: roles, bindings",
		"a: [\n":                      "line 1: did not find expected node content",
		"--- {}\n---\n":               "no roles and no bindings",
		bindings + "---\n" + bindings: "more than one document",
		bindings + "    role: [x]\n":  "line 4: unknown key role",
		"bindings:\n  - identity: a\n    roles: [admin]\n  - identity: a\n    roles: [user]\n":        `line 4: invalid policy: "a" has two bindings`,
		"bindings:\n  - identity: b\n    roles: [x]\n":                                                `line 2: invalid policy: binding of "b": there is no role "x"`,
		"roles:\n  - name: x\n    locks:\n      - prefix: a/\n        verbs: [red]\n":                 `line 5: "red" is no verb: those on locks are read, lock and operate`,
		"roles:\n  - name: y\n  - name: x\n    locks:\n      - prefix: a\n        verbs: [read]\n":    `line 3: invalid policy: role "x": prefix "a" must end with '/'`,
		"roles:\n  - name: x\n    locks:\n      - prefix: a/\n        verbs: [audit]\n":               `line 2: invalid policy: role "x": audit is not a verb on locks`,
		"roles:\n  - name: x\n    cluster: [READ]\n":                                                  `line 3: "READ" is no verb`,
		"roles:\n  - name: x\n    name: y\n":                                                          "line 3: mapping key \"name\" already defined at line 2",
		"roles:\n  - name: x\n    locks:\n      - prefix: [a]\n        verbs: [read]\n        b: 1\n": "line 4: the value does not fit here: roles, bindings, quotas, locks and verbs are lists, such as [admin], and limits are numbers; line 6: unknown key b",
		strings.Repeat("#", maxPolicyFile+1):                                                          "more than 4194304 bytes",
	} {
		path := writeFile(t, "p", text)
		for _, line := range []string{"policy diff", "policy apply --yes --reason r", "policy can --policy PATH alice audit"} {
			words := strings.Fields(strings.ReplaceAll(line, "PATH", path))
			if !strings.Contains(line, "PATH") {
				words = append(words, path)
			}
			got := execTest(t, (&fakeService{t: t}).dialer, words...)
			if got.code != exitUsage || !strings.Contains(got.err, says) || strings.Count(got.err, "\n") != 1 || got.out != "" {
				t.Errorf("%s with %.80q: %+v, want %q", line, text, got, says)
			}
		}
	}
	if got := execTest(t, (&fakeService{t: t}).dialer, "policy", "diff", "/nowhere/p"); got.code != exitNoSuch {
		t.Errorf("%+v", got)
	}
}

// changing is a cluster that records the policy that it is given.
func changing(t *testing.T, policy *wire.Policy) (f *fakeService, asked *[]*wire.SetPolicy) {
	f, asked = answering(t), &[]*wire.SetPolicy{}
	f.access.policy = always[*wire.GetPolicyRequest](&wire.GetPolicyResponse{Policy: policy, Revision: 412})
	f.access.set = func(req *wire.SetPolicy) (*wire.OperatorResponse, error) {
		*asked = append(*asked, req)
		return &wire.OperatorResponse{Status: wire.Status_OK, Revision: 420}, nil
	}
	return f, asked
}

// answer makes confirmations possible, and restores that afterwards.
func answerable(t *testing.T) {
	t.Helper()
	before := interactive
	t.Cleanup(func() { interactive = before })
	interactive = func(*os.File) bool { return true }
}

// TestPolicyApply checks what is asked of the cluster, for each answer to the question.
func TestPolicyApply(t *testing.T) {
	next, err := parsePolicy([]byte(readFile(t, "testdata/new-policy.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Fields("policy apply testdata/new-policy.yaml --reason r --operator me")
	want := &wire.SetPolicy{Policy: next, ExpectedRevision: 412, Reason: "r", Operator: "me"}
	for name, test := range map[string]struct {
		more     []string
		terminal bool
		in       string
		code     int
		applied  bool
		says     string
	}{
		"--yes":          {[]string{"--yes"}, false, "", exitOK, true, "carol gains operator"},
		"no terminal":    {nil, false, "y\n", exitUsage, false, "give --yes"},
		"y":              {nil, true, "y\n", exitOK, true, "change the policy? [y/N]"},
		"yes":            {nil, true, " YES \n", exitOK, true, "bob loses auditor"},
		"no":             {nil, true, "n\n", exitNo, false, "nothing was changed"},
		"nothing":        {nil, true, "\n", exitNo, false, "nothing was changed"},
		"end of input":   {nil, true, "", exitNo, false, "nothing was changed"},
		"--dry-run":      {[]string{"--dry-run"}, true, "y\n", exitOK, false, ""},
		"json and --yes": {[]string{"--yes", "-o", "json"}, false, "", exitOK, true, "ci-* loses reader"},
	} {
		t.Run(name, func(t *testing.T) {
			f, asked := changing(t, examplePolicy())
			if test.terminal {
				answerable(t)
			}
			got := execInput(t, f.dialer, test.in, append(line, test.more...)...)
			if got.code != test.code || !strings.Contains(got.err, test.says) || (len(*asked) == 1) != test.applied {
				t.Errorf("%+v, asked %v", got, *asked)
			}
			if test.applied && !proto.Equal((*asked)[0], want) {
				t.Errorf("asked %v, want %v", (*asked)[0], want)
			}
			if name == "json and --yes" && got.out != "{\n  \"status\": \"OK\",\n  \"revision\": \"420\",\n  \"message\": \"\"\n}\n" {
				t.Errorf("%q", got.out)
			}
		})
	}
}

// TestPolicyApplyOfTheSame checks that a policy that is the same already is not sent.
func TestPolicyApplyOfTheSame(t *testing.T) {
	f, asked := changing(t, examplePolicy())
	got := execTest(t, f.dialer, "policy", "apply", policyFile(t, examplePolicy()), "--reason", "r")
	if got.code != 0 || got.out != "the policy is the same\n" || len(*asked) != 0 {
		t.Errorf("%+v, asked %v", got, *asked)
	}
}

// TestPolicyFromStdin checks that - is the standard input.
func TestPolicyFromStdin(t *testing.T) {
	f, asked := changing(t, nil)
	got := execInput(t, f.dialer, readFile(t, policyFile(t, examplePolicy())), "policy", "apply", "-", "--yes", "--reason", "r")
	if got.code != 0 || len(*asked) != 1 || !proto.Equal((*asked)[0].GetPolicy(), examplePolicy()) {
		t.Errorf("%+v, asked %v", got, *asked)
	}
}

// TestPolicyChangedMeanwhile checks that a refusal of the cluster is reported with its reason.
func TestPolicyChangedMeanwhile(t *testing.T) {
	f, _ := changing(t, examplePolicy())
	f.access.set = func(*wire.SetPolicy) (*wire.OperatorResponse, error) {
		return nil, &client.StatusError{Status: client.StatusFailedPrecondition, Message: "the policy was changed at revision 415"}
	}
	for _, line := range []string{"policy apply testdata/new-policy.yaml --yes --reason r", "policy remove --yes --reason r"} {
		got := execTest(t, f.dialer, strings.Fields(line)...)
		if got.code != exitInternal || !strings.Contains(got.err, "not changed: the policy was changed at revision 415") {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

// TestPolicyRemove checks that the policy is removed after a confirmation only.
func TestPolicyRemove(t *testing.T) {
	f, asked := changing(t, examplePolicy())
	if got := execTest(t, f.dialer, "policy", "remove", "--reason", "r"); got.code != exitUsage || len(*asked) != 0 {
		t.Errorf("%+v", got)
	}
	got := execTest(t, f.dialer, "policy", "remove", "--reason", "r", "--operator", "me", "--yes")
	if got.code != 0 || !strings.Contains(got.err, "WARNING: without a policy, every client may do everything") {
		t.Errorf("%+v", got)
	}
	if want := (&wire.SetPolicy{ExpectedRevision: 412, Reason: "r", Operator: "me"}); len(*asked) != 1 || !proto.Equal((*asked)[0], want) {
		t.Errorf("asked %v, want %v", *asked, want)
	}
	none, asked := changing(t, nil)
	if got := execTest(t, none.dialer, "policy", "remove", "--reason", "r", "--yes"); got.code != 0 || len(*asked) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestPolicyWarnings checks the consequences that a comparison points out.
func TestPolicyWarnings(t *testing.T) {
	reader := &wire.Policy{Bindings: []*wire.Binding{{Identity: "*", Roles: []string{"reader"}}}}
	mine := &wire.Policy{Bindings: []*wire.Binding{{Identity: "alice", Roles: []string{"admin"}}}}
	part := &wire.Policy{Bindings: []*wire.Binding{{Identity: "*", Roles: []string{"reader"}}, {Identity: "ci-*", Roles: []string{"reader"}}, {Identity: "alice", Roles: []string{"admin"}}}}
	other := &wire.Policy{Bindings: []*wire.Binding{{Identity: "bob", Roles: []string{"admin"}}}}
	for name, test := range map[string]struct {
		before, after *wire.Policy
		says, never   []string
	}{
		"the first":        {nil, mine, []string{"--- no policy", "there is no policy yet", "alice gains admin"}, []string{"you, alice", "will refuse"}},
		"nobody's":         {mine, reader, []string{"the cluster will refuse it", "you, alice, could not", "alice gains reader", "* gains reader", "alice loses admin"}, nil},
		"another's":        {mine, other, []string{"you, alice, could not", "bob gains admin"}, []string{"will refuse"}},
		"a part of *":      {reader, part, []string{"alice gains admin"}, []string{"ci-* gains"}},
		"without a change": {mine, mine, []string{"the policy is the same"}, []string{"WARNING"}},
	} {
		f, _ := changing(t, test.before)
		got := execTest(t, f.dialer, "policy", "diff", policyFile(t, test.after))
		for _, part := range test.says {
			if got.code != 0 || !strings.Contains(got.out, part) {
				t.Errorf("%s: %+v, want %q", name, got, part)
			}
		}
		for _, part := range test.never {
			if strings.Contains(got.out, part) {
				t.Errorf("%s: %+v has %q", name, got, part)
			}
		}
	}
}

// TestPolicyCan checks the answers about a file and about the cluster, and the exit codes.
func TestPolicyCan(t *testing.T) {
	path := policyFile(t, examplePolicy())
	for line, want := range map[string]execution{
		"alice lock orders/42":   {exitOK, "yes: the binding of alice gives role admin, which allows lock on /\n", ""},
		"ci-7 lock orders/42":    {exitOK, "yes: the binding of ci-* gives role deploy, which allows lock on orders/\n", ""},
		"ci-7 operate release":   {exitOK, "yes: the binding of ci-* gives role deploy, which allows operate on release\n", ""},
		"ci-7 operate orders/42": {exitNo, "no: ci-7 has the roles deploy, reader, and no rule allows this\n", ""},
		"bob backup":             {exitOK, "yes: the binding of bob gives role auditor, which allows backup on the cluster\n", ""},
		"bob members":            {exitNo, "no: bob has only role auditor, and no rule allows this\n", ""},
		"mallory read orders/42": {exitNo, "no: no binding gives mallory a role\n", ""},
		"alice":                  {exitUsage, "", "takes an identity, a verb"},
		"alice lock":             {exitUsage, "", "lock is about a lock: give its name"},
		"alice audit orders/42":  {exitUsage, "", "audit is about the cluster"},
		"alice frob orders/42":   {exitUsage, "", `"frob" is no verb`},
	} {
		got := execTest(t, (&fakeService{t: t}).dialer, append(strings.Fields("policy can --policy "+path), strings.Fields(line)...)...)
		if got.code != want.code || got.out != want.out || !strings.Contains(got.err, want.err) || want.err == "" && got.err != "" {
			t.Errorf("%s: %+v, want %+v", line, got, want)
		}
	}
	f := answering(t)
	var asked *wire.TestPolicyRequest
	f.access.test = func(req *wire.TestPolicyRequest) (*wire.TestPolicyResponse, error) {
		asked = req
		return &wire.TestPolicyResponse{Reason: "no role"}, nil
	}
	got := execTest(t, f.dialer, "policy", "can", "bob", "operate", "a", "-o", "json")
	if got.code != exitNo || got.out != "{\n  \"allowed\": false,\n  \"reason\": \"no role\"\n}\n" || got.err != "" ||
		!proto.Equal(asked, &wire.TestPolicyRequest{Identity: "bob", Verb: wire.Verb_OPERATE, Lock: "a"}) {
		t.Errorf("%+v for %v", got, asked)
	}
}

// TestStatusWithoutAPolicy checks that status points out that there is no policy.
func TestStatusWithoutAPolicy(t *testing.T) {
	f := answering(t)
	const line = "policy: none: every client may do everything (qlock policy apply)\n"
	if got := execTest(t, f.dialer, "status"); strings.Contains(got.out, "policy") {
		t.Errorf("%+v", got)
	}
	f = answering(t) // the first call may still read the other one
	f.statusFunc = func(*wire.StatusRequest) (*wire.StatusResponse, error) {
		s := clusterStatus()
		s.HasPolicy = false
		return s, nil
	}
	if got := execTest(t, f.dialer, "status"); !strings.Contains(got.out, "\n"+line) {
		t.Errorf("%+v", got)
	}
	f.access.whoAmI = always[*wire.WhoAmIRequest](&wire.WhoAmIResponse{Caller: &wire.Caller{Identity: "anonymous", Address: "127.0.0.1:9"}})
	want := "anonymous\n  verified by no certificate and no token, from 127.0.0.1:9\n  policy: none: every client may do everything\n"
	if got := execTest(t, f.dialer, "whoami"); got.out != want {
		t.Errorf("%+v", got)
	}
}

// TestIdentityComesFirst checks that a client cannot pass for another identity by the names that it chooses.
func TestIdentityComesFirst(t *testing.T) {
	claims := &wire.ClientInfo{HostName: "alice (web1", Pid: 1, Name: "x)"}
	for identity, want := range map[string]string{
		"mallory":   "mallory (alice (web1/1 x))",
		"anonymous": "anonymous (alice (web1/1 x))",
		"a\nb":      `a\nb (alice (web1/1 x))`,
		"":          "alice (web1/1 x)",
	} {
		if got := who(&wire.HolderInfo{Identity: identity, Client: claims, SessionId: 7}); got != want {
			t.Errorf("%q: %s", identity, got)
		}
	}
}
