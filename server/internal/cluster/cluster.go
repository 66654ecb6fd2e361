package cluster

import (
	"slices"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/internal/directory"
)

// Cluster is a node's view of its cluster. It has no servers until raft runs. It is safe for concurrent use once
// Directory is set.
type Cluster struct {
	// Directory has the members' current addresses.
	Directory *directory.Directory

	node  atomic.Pointer[raft.Raft]
	wiped wipedVoters
}

// Run makes raft's configuration available.
func (c *Cluster) Run(node *raft.Raft) { c.node.Store(node) }

// Raft returns raft, or nil until it runs.
func (c *Cluster) Raft() *raft.Raft { return c.node.Load() }

// Servers returns raft's configuration by id.
func (c *Cluster) Servers() map[string]raft.Server {
	servers := map[string]raft.Server{}
	node := c.Raft()
	if node == nil {
		return servers
	}
	future := node.GetConfiguration() // already done
	for _, s := range future.Configuration().Servers {
		servers[string(s.ID)] = s
	}
	return servers
}

// Contains reports whether a node is in raft's configuration.
func (c *Cluster) Contains(id string) bool {
	_, ok := c.Servers()[id]
	return ok
}

// Voters returns the ids of the voters.
func (c *Cluster) Voters() (ids []string) {
	for id, s := range c.Servers() {
		if s.Suffrage == raft.Voter {
			ids = append(ids, id)
		}
	}
	return ids
}

// Votes reports whether a node is a voter.
func (c *Cluster) Votes(id string) bool {
	s, ok := c.Servers()[id]
	return ok && s.Suffrage == raft.Voter
}

// Resolve returns the replicated address of a node, or else addr, the one in raft's configuration.
func (c *Cluster) Resolve(id raft.ServerID, addr raft.ServerAddress) raft.ServerAddress {
	_, _, members := c.Directory.Record()
	if known := members[string(id)].GetPeerAddr(); known != "" {
		return raft.ServerAddress(known)
	}
	return addr
}

// At returns the ID of the node that has this address in raft's configuration, "" if there is none.
func (c *Cluster) At(addr raft.ServerAddress) string {
	for id, s := range c.Servers() {
		if s.Address == addr {
			return id
		}
	}
	return ""
}

// Peer returns a server of raft's configuration with its current address.
func (c *Cluster) Peer(s raft.Server) directory.Peer {
	return directory.Peer{ID: string(s.ID), Addr: string(c.Resolve(s.ID, s.Address))}
}

// Leader returns the leader that raft follows, with its current address. The peer is empty if there is none. Raft
// forgets the leader when the term changes.
func (c *Cluster) Leader() directory.Peer {
	node := c.Raft()
	if node == nil {
		return directory.Peer{}
	}
	addr, id := node.LeaderWithID()
	if id == "" {
		return directory.Peer{}
	}
	return directory.Peer{ID: string(id), Addr: string(c.Resolve(id, addr))}
}

// Follows reports whether raft follows that node in the current term.
func (c *Cluster) Follows(id raft.ServerID) bool {
	node := c.Raft()
	if node == nil || node.State() != raft.Follower {
		return false
	}
	_, leader := node.LeaderWithID()
	return leader == id
}

// LeadsOthers reports whether raft leads and needs another voter to commit anything.
func (c *Cluster) LeadsOthers() bool {
	node := c.Raft()
	return node != nil && node.State() == raft.Leader && len(c.Voters()) > 1
}

// VotersBut returns the voters except those named.
func VotersBut(servers map[string]raft.Server, ids ...string) (voters []raft.Server) {
	for id, s := range servers {
		if s.Suffrage == raft.Voter && !slices.Contains(ids, id) {
			voters = append(voters, s)
		}
	}
	return voters
}
