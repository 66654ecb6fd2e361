// Package rights decides what an identity may do under a policy.
//
// A policy has roles and bindings. A role is a list of rules, which allow verbs on one lock or on all locks below a
// prefix, and of verbs on the cluster. A binding gives roles to one identity, or to all that match a pattern. [Compile]
// checks a policy and indexes it. [Policy.Grants] collects everything that the policy gives to one identity; [Grants]
// then answers in a few lookups, whatever the number of roles and bindings.
//
// A nil *Policy stands for a cluster without a policy, and a nil *Grants for an identity that may do everything.
//
// The package is pure, like fsm, which checks commands with it when it applies them. The ports check requests with it
// before they dispatch them.
package rights
