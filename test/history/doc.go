// Package history records what the clients of a cluster did and saw, on a single time line. The record can be
// checked after the run (package judge) or read by people.
//
// There are two sources. The tap wraps every connection of an SDK client (client.Config.Dial) and parses the
// traffic. It records each request, with the times at which it was sent and answered, and each push: what was
// on the wire, independent of the SDK's interpretation. TapHTTP does the same for leases over HTTP. The holds
// record what the application saw: the interval in which it could believe that it held a lock.
//
//	log := history.New(nil)
//	c, err := client.New(client.Config{Endpoints: nodes, Dial: log.Tap("c1", nil)})
//	...
//	held := log.Grant(history.Hold{Client: "c1", ID: h.ID(), Token: h.Token(), ...})
//	held.Follow(h.Context()) // it ends with the context at the latest
//	...
//	held.End() // or here, before the release is requested
//	if h.Unlock(ctx) == nil {
//		held.Acknowledge()
//	}
//	...
//	verdict := judge.Run(judge.Input{History: log.History(), ...})
//
// A history can be stored as a file of JSON lines: see WriteTo and Read.
package history
