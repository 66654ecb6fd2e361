// Package seeds resolves the addresses at which a new node looks for others: host:port, where a host can have several
// addresses, as that of a headless service of Kubernetes has, and names of SRV records.
package seeds
