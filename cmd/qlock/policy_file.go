package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"sort"
	"strings"

	"github.com/urfave/cli/v2"
	"gopkg.in/yaml.v3"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxPolicyFile bounds the file of a policy, in bytes. The policy itself has a lower bound.
const maxPolicyFile = 4 << 20

// policyForm is a policy as people write it, in YAML.
type policyForm struct {
	Roles    []roleForm    `yaml:"roles,omitempty"`
	Bindings []bindingForm `yaml:"bindings,omitempty"`
	Quotas   []quotaForm   `yaml:"quotas,omitempty"`
}

type quotaForm struct {
	Identity          textForm `yaml:"identity,omitempty"`
	Prefix            textForm `yaml:"prefix,omitempty"`
	Sessions          uint64   `yaml:"sessions,omitempty"`
	Claims            uint64   `yaml:"claims,omitempty"`
	Bytes             uint64   `yaml:"bytes,omitempty"`
	Watches           uint64   `yaml:"watches,omitempty"`
	Connections       uint64   `yaml:"connections,omitempty"`
	RequestsPerSecond uint64   `yaml:"requests_per_second,omitempty"`
}

type roleForm struct {
	Name    textForm   `yaml:"name"`
	Locks   []ruleForm `yaml:"locks,omitempty"`
	Cluster []verbForm `yaml:"cluster,omitempty,flow"`
}

type ruleForm struct {
	Prefix textForm   `yaml:"prefix,omitempty"`
	Name   textForm   `yaml:"name,omitempty"`
	Verbs  []verbForm `yaml:"verbs,flow"`
}

type bindingForm struct {
	Identity textForm   `yaml:"identity"`
	Roles    []textForm `yaml:"roles,flow"`
}

// textForm is a text that is quoted if it contains characters that are escaped when it is shown. Within quotes, YAML reads
// the escapes of [wire.Printable].
type textForm string

// MarshalYAML returns the text as a scalar.
func (t textForm) MarshalYAML() (any, error) {
	node := &yaml.Node{}
	node.SetString(string(t))
	if printable(string(t)) != string(t) {
		node.Style = yaml.DoubleQuotedStyle
	}
	return node, nil
}

// verbForm is a verb in lower case.
type verbForm wire.Verb

// MarshalYAML returns the verb's name.
func (v verbForm) MarshalYAML() (any, error) { return rights.VerbName(wire.Verb(v)), nil }

// UnmarshalYAML parses the verb's name.
func (v *verbForm) UnmarshalYAML(node *yaml.Node) error {
	parsed, err := parseVerb(node.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", node.Line, err)
	}
	*v = verbForm(parsed)
	return nil
}

// verbsAllowed are the verbs, those on locks first.
var verbsAllowed = []wire.Verb{
	wire.Verb_READ, wire.Verb_LOCK, wire.Verb_OPERATE,
	wire.Verb_AUDIT, wire.Verb_BACKUP, wire.Verb_MEMBERS, wire.Verb_RESTORE, wire.Verb_POLICY,
}

// verbChoices are the names of all verbs.
func verbChoices() (names []string) {
	for _, v := range verbsAllowed {
		names = append(names, rights.VerbName(v))
	}
	return names
}

func parseVerb(name string) (wire.Verb, error) {
	for _, v := range verbsAllowed {
		if rights.VerbName(v) == name {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%q is no verb: those on locks are read, lock and operate, those on the cluster audit, backup, members, restore and policy", name)
}

// readPolicy reads a policy from a file, or from the standard input if path is "-". It returns an error with the line
// for a policy that no cluster accepts.
func readPolicy(c *cli.Context, path string) (*wire.Policy, error) {
	content, err := readPolicyFile(c, path)
	if err != nil {
		return nil, err
	}
	policy, err := parsePolicy(content)
	if err != nil {
		return nil, usagef("%s: %w", printable(path), err)
	}
	return policy, nil
}

func readPolicyFile(c *cli.Context, path string) ([]byte, error) {
	from := c.App.Reader
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, failf(exitNoSuch, "read the policy: %w", err)
		}
		defer f.Close()
		from = f
	}
	content, err := io.ReadAll(io.LimitReader(from, maxPolicyFile+1))
	switch {
	case err != nil:
		return nil, failf(exitNoSuch, "read the policy: %w", err)
	case len(content) > maxPolicyFile:
		return nil, usagef("%s has more than %d bytes, which no policy needs", printable(path), maxPolicyFile)
	}
	return content, nil
}

// parsePolicy parses and checks the YAML form of a policy.
func parsePolicy(content []byte) (*wire.Policy, error) {
	var form policyForm
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, plainYAMLError(err)
	}
	if document.Kind != 0 && document.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: a policy has the keys roles, bindings and quotas", document.Content[0].Line)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	err := decoder.Decode(&form)
	if errors.Is(err, io.EOF) || err == nil && len(form.Roles)+len(form.Bindings) == 0 {
		return nil, errors.New("it contains no roles and no bindings: bind at least one identity to a role with the verb policy, such as admin; to remove the policy, use qlock policy remove")
	}
	if err == nil && !errors.Is(decoder.Decode(&yaml.Node{}), io.EOF) {
		return nil, errors.New("it contains more than one document")
	}
	if err != nil {
		return nil, plainYAMLError(err)
	}
	policy := form.policy()
	if _, err := rights.Compile(policy); err != nil {
		return nil, located(policy, &document, err)
	}
	return policy, nil
}

var (
	unknownKey = regexp.MustCompile(`field (\S+) not found in type \S+`)
	goType     = regexp.MustCompile("cannot unmarshal !!\\S+( `.*`)? into \\S+")
)

// plainYAMLError removes what only a programmer understands from an error of the library.
func plainYAMLError(err error) error {
	said := strings.TrimPrefix(err.Error(), "yaml: ")
	said = strings.TrimPrefix(said, "unmarshal errors:\n  ")
	said = unknownKey.ReplaceAllString(said, "unknown key $1")
	said = goType.ReplaceAllString(said, "the value$1 does not fit here: roles, bindings, quotas, locks and verbs are lists, such as [admin], and limits are numbers")
	return errors.New(strings.ReplaceAll(said, "\n  ", "; "))
}

// located adds the line of the first role, binding or quota that is not valid to an error.
func located(policy *wire.Policy, document *yaml.Node, err error) error {
	fails := func(roles, bindings, quotas int) bool {
		_, err := rights.Compile(&wire.Policy{Roles: policy.GetRoles()[:roles], Bindings: policy.GetBindings()[:bindings], Quotas: policy.GetQuotas()[:quotas]})
		return err != nil
	}
	roles, bindings := len(policy.GetRoles()), len(policy.GetBindings())
	key, at := "roles", sort.Search(roles, func(i int) bool { return fails(i+1, 0, 0) })
	if at == roles {
		key, at = "bindings", sort.Search(bindings, func(i int) bool { return fails(roles, i+1, 0) })
	}
	if key == "bindings" && at == bindings {
		key, at = "quotas", sort.Search(len(policy.GetQuotas()), func(i int) bool { return fails(roles, bindings, i+1) })
	}
	if node := entry(document, key, at); node != nil {
		return fmt.Errorf("line %d: %w", node.Line, err)
	}
	return err
}

// entry returns the entry of a list at the top level of a document, or nil.
func entry(document *yaml.Node, key string, at int) *yaml.Node {
	top := document.Content[0]
	for i := 0; i+1 < len(top.Content); i += 2 {
		if list := top.Content[i+1]; top.Content[i].Value == key && at < len(list.Content) {
			return list.Content[at]
		}
	}
	return nil
}

// policy converts the form to that of the cluster.
func (f policyForm) policy() *wire.Policy {
	policy := &wire.Policy{}
	for _, r := range f.Roles {
		role := &wire.Role{Name: string(r.Name)}
		for _, l := range r.Locks {
			rule := &wire.LockRule{Prefix: string(l.Prefix), Name: string(l.Name)}
			for _, v := range l.Verbs {
				rule.Verbs = append(rule.Verbs, wire.Verb(v))
			}
			role.Locks = append(role.Locks, rule)
		}
		for _, v := range r.Cluster {
			role.Cluster = append(role.Cluster, wire.Verb(v))
		}
		policy.Roles = append(policy.Roles, role)
	}
	for _, b := range f.Bindings {
		binding := &wire.Binding{Identity: string(b.Identity)}
		for _, role := range b.Roles {
			binding.Roles = append(binding.Roles, string(role))
		}
		policy.Bindings = append(policy.Bindings, binding)
	}
	for _, q := range f.Quotas {
		policy.Quotas = append(policy.Quotas, &wire.Quota{
			Identity: string(q.Identity), Prefix: string(q.Prefix), Sessions: q.Sessions, Claims: q.Claims, Bytes: q.Bytes,
			Watches: q.Watches, Connections: q.Connections, RequestsPerSecond: q.RequestsPerSecond,
		})
	}
	return policy
}

// formOf is the reverse of policy.
func formOf(policy *wire.Policy) (f policyForm) {
	for _, r := range policy.GetRoles() {
		role := roleForm{Name: textForm(r.GetName())}
		for _, l := range r.GetLocks() {
			rule := ruleForm{Prefix: textForm(l.GetPrefix()), Name: textForm(l.GetName())}
			for _, v := range l.GetVerbs() {
				rule.Verbs = append(rule.Verbs, verbForm(v))
			}
			role.Locks = append(role.Locks, rule)
		}
		for _, v := range r.GetCluster() {
			role.Cluster = append(role.Cluster, verbForm(v))
		}
		f.Roles = append(f.Roles, role)
	}
	for _, b := range policy.GetBindings() {
		binding := bindingForm{Identity: textForm(b.GetIdentity())}
		for _, role := range b.GetRoles() {
			binding.Roles = append(binding.Roles, textForm(role))
		}
		f.Bindings = append(f.Bindings, binding)
	}
	for _, q := range policy.GetQuotas() {
		f.Quotas = append(f.Quotas, quotaForm{
			Identity: textForm(q.GetIdentity()), Prefix: textForm(q.GetPrefix()), Sessions: q.GetSessions(), Claims: q.GetClaims(), Bytes: q.GetBytes(),
			Watches: q.GetWatches(), Connections: q.GetConnections(), RequestsPerSecond: q.GetRequestsPerSecond(),
		})
	}
	return f
}

// policyYAML returns the YAML form of a policy, and "" for no policy.
func policyYAML(policy *wire.Policy) (string, error) {
	if policy == nil {
		return "", nil
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(formOf(policy)), encoder.Close()); err != nil {
		return "", failf(exitInternal, "encode the policy: %w", err)
	}
	return out.String(), nil
}
