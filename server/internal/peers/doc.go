// Package peers keeps what this node and its peers know about each other's disks, and compares it at each connection.
//
// A node stores for each peer what that peer has acknowledged: its term, its votes, and entries.
// Two nodes exchange this when they connect. If a disk was rolled back, its node lacks something that a peer knows, and
// stops. If two logs have forked, both nodes raise an alarm, and the branch with more voters continues. Package rollback
// has the comparisons.
package peers
