// Package netns creates small networks on which packets can be lost: hosts in their own network namespaces,
// on one switch. It changes nothing outside of them, and leaves nothing behind: an unnamed namespace ends
// with its last file and process, however the test ends.
//
//   - Net is a switch and its hosts; programs and connections are started on a host with Net.In and
//     Net.Dialer (net.go, space.go);
//   - Fault is an nftables rule that affects and counts packets while it is active: cut, lose, reject, reset
//     (fault.go).
//
// It needs Linux, root, and the programs ip and nft. Unable returns what is missing.
package netns
