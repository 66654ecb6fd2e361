// Package history writes down what the clients of a cluster did and saw, in one time line,
// so that it can be judged afterwards (package judge) or read by people.
//
// There are two witnesses. The tap stands on every connection of an SDK client
// (client.Config.Dial), reads along, and books each request with the times of its sending
// and of its answer, and each push: what the wire said, whatever the SDK made of it; TapHTTP
// does the same for leases over HTTP. The holds are what the application saw: from when to
// when it could believe that a lock was its own.
//
//	log := history.New(nil)
//	c, err := client.New(client.Config{Endpoints: nodes, Dial: log.Tap("c1", nil)})
//	...
//	held := log.Grant(history.Hold{Client: "c1", ID: h.ID(), Token: h.Token(), ...})
//	held.Follow(h.Context()) // it ends with the context at the latest
//	...
//	held.End() // or here, before the release is asked for
//	if h.Unlock(ctx) == nil {
//		held.Acknowledge()
//	}
//	...
//	verdict := judge.Run(judge.Input{History: log.History(), ...})
//
// A history is a file of JSON lines as well: WriteTo and Read.
package history
