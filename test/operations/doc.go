// Package operations runs docs/OPERATIONS.md as an operator would: the commands of the document, on hosts of their own.
//
//   - hosts are machines with their own files, processes and network, in namespaces of this machine (hosts.go);
//   - the test gives the document's script ssh and scp, which reach them, and fail, which ends a host.
//
// It needs Linux, root, overlayfs, and the programs ip, nft, unshare and nsenter.
package operations
