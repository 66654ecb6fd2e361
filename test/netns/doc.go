// Package netns makes small networks on which packets can be lost: hosts in network
// namespaces of their own, on one switch. Nothing outside of them changes, and nothing of
// them stays: a namespace without a name is gone with the last file and process that it
// has, however the test ends.
//
//   - Net is a switch and its hosts; programs and connections are started in one of them
//     with Net.In and Net.Dialer (net.go, space.go);
//   - Fault is what nftables does to packets while it is in force, and counts: cut, lose,
//     reject, reset (fault.go).
//
// It takes Linux, root, and the programs ip and nft. Unable says what is missing.
package netns
