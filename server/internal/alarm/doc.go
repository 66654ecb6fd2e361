// Package alarm keeps the findings of a node that need an operator's attention: that the log of another node
// has forked from its own.
//
// An alarm carries the revision that the node's state had when it was raised. When an operator acknowledges
// alarms, the state records the revision of the acknowledgement. An alarm remains unless it is older than the
// last acknowledgement: a finding in a state that includes the acknowledgement is new. So all nodes agree on
// which alarms have ended, including nodes that apply the acknowledgement later.
package alarm
