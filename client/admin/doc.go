// Package admin reads the state of a Quorumlock cluster and changes it on behalf of an operator: locks with
// their holders and queues, sessions, deadlocks, the audit log, the members and their alarms.
//
//	a := admin.New(c) // c is a *client.Client
//	lock, err := a.Lock(ctx, "orders/42")
//	for _, h := range lock.Holders {
//		fmt.Println(h.Client.HostName, h.Token, h.HeldFor)
//	}
//
// [Client.Policy] and [Client.SetPolicy] say who may do what, [Client.CreateToken] makes tokens for clients without a
// certificate, and [Client.WhoAmI] returns the identity that the cluster has verified. [Client.Quota] returns how much
// of its quota an identity uses.
//
// Reads are linearizable unless [Stale] is given. Every action has a reason and the name of an operator, which
// the audit log keeps. Errors are those of package client.
//
// convert.go copies answers into the types of this package by the names of their fields; a test checks that
// no field of an answer is left out.
package admin
