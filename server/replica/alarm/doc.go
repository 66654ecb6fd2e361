// Package alarm keeps what a node has found and an operator has to know: that the log of another node has
// another course.
//
// An alarm has the revision that the node's state had when it was raised. When an operator acknowledges
// alarms, the state keeps the revision of that. An alarm stands while it is not older than the last
// acknowledgement: what is found in a state that includes the acknowledgement is new. So all nodes agree
// which alarms have ended, also those that apply the acknowledgement later.
package alarm
