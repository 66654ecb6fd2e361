package raftlog

import "github.com/hashicorp/go-hclog"

// rule says what becomes of a message of raft.
type rule struct {
	// text replaces the message. If it is empty, the message is logged at level debug: the node logs the event itself,
	// or it is a step of one.
	text  string
	level hclog.Level
	// count records what is counted. It may be nil.
	count func(l *Logger, args []any)
}

// What several messages say.
var (
	quiet            = rule{}
	entryNotRead     = rule{text: "cannot read an entry of the log", level: hclog.Error}
	entriesNotKept   = rule{text: "cannot write entries to the log", level: hclog.Error}
	entriesNotGone   = rule{text: "cannot remove entries of the log", level: hclog.Error}
	voteNotRead      = rule{text: "cannot read the vote of this node", level: hclog.Error}
	snapshotNotKept  = rule{text: "cannot write a snapshot", level: hclog.Error}
	snapshotNotRead  = rule{text: "cannot read a snapshot", level: hclog.Error}
	snapshotsUnknown = rule{text: "cannot list the snapshots", level: hclog.Error}
	snapshotMissed   = rule{text: "the snapshot of the leader did not arrive", level: hclog.Warn}
	unknownCall      = rule{text: "a node has sent an unknown call", level: hclog.Error}
	unreached        = rule{count: func(l *Logger, args []any) { l.outages.failed(l.node(args), failure(args)) }}
	reached          = rule{count: func(l *Logger, args []any) { l.outages.ended(l.node(args)) }}
	unreachedVoter   = rule{count: func(l *Logger, args []any) { l.search.failed(l.node(args)) }}
	silentLeader     = rule{count: func(l *Logger, args []any) { l.search.silent(l.node(args)) }}
	election         = rule{count: func(l *Logger, _ []any) { l.search.election() }}
)

// table has each message that raft v1.7.3 logs at level info or above.
var table = map[string]rule{
	// elections
	"heartbeat timeout reached, starting election":           silentLeader,
	"entering candidate state":                               election,
	"failed to make requestVote RPC":                         unreachedVoter,
	"failed to contact quorum of nodes, stepping down":       {text: "the leader cannot reach a majority of the voters: it steps down", level: hclog.Warn},
	"entering follower state":                                quiet,
	"entering leader state":                                  quiet,
	"election won":                                           quiet,
	"pre-vote successful, starting election":                 quiet,
	"pre-vote campaign failed, waiting for election timeout": quiet,
	"Election timeout reached, restarting election":          quiet,
	"new leader elected, stepping down":                      quiet,
	"no known peers, aborting election":                      quiet,
	"not part of stable configuration, aborting election":    quiet,
	"heartbeat timeout reached, not part of a stable configuration or a non-voter, not triggering a leader election": {text: "no leader is heard of: this node has no vote and waits", level: hclog.Info},
	"cannot transfer leadership to itself":                              quiet,
	"duplicate requestVote for same term":                               quiet,
	"duplicate requestVote from":                                        quiet,
	"rejecting vote request since node is not in configuration":         quiet,
	"rejecting vote request since we have a leader":                     quiet,
	"rejecting vote request since node is not a voter":                  quiet,
	"rejecting vote request since our last term is greater":             quiet,
	"rejecting vote request since our last index is greater":            quiet,
	"rejecting pre-vote request since node is not in configuration":     quiet,
	"rejecting pre-vote request since we have a leader":                 quiet,
	"rejecting pre-vote request since node is not a voter":              quiet,
	"rejecting pre-vote request since our last term is greater":         quiet,
	"rejecting pre-vote request since our last index is greater":        quiet,
	"target does not support pre-vote RPC, treating as granted":         quiet,
	"pre-vote is disabled because it is not supported by the Transport": {text: "elections have no pre-vote", level: hclog.Warn},
	"failed to get last vote term":                                      voteNotRead,
	"failed to get last vote candidate":                                 voteNotRead,
	"failed to persist vote":                                            {text: "cannot write the vote of this node", level: hclog.Error},

	// replication
	"failed to heartbeat to":                     unreached,
	"failed to appendEntries to":                 unreached,
	"failed to pipeline appendEntries":           unreached,
	"failed to start pipeline replication to":    unreached,
	"failed to send snapshot to":                 unreached,
	"pipelining replication":                     reached,
	"failed to contact":                          quiet,
	"aborting pipeline replication":              quiet,
	"peer has newer term, stopping replication":  quiet,
	"appendEntries rejected, sending older logs": quiet,
	"failed to get previous log":                 quiet,
	"previous log term mis-match":                quiet,
	"clearing log suffix":                        {text: "removing entries that were never committed", level: hclog.Info},
	"failed to clear log suffix":                 entriesNotGone,
	"failed to append to logs":                   entriesNotKept,
	"failed to commit logs":                      entriesNotKept,
	"failed to append entry":                     {text: "cannot read a change of the members", level: hclog.Error},
	"failed to get log":                          entryNotRead,
	"failed to get log entry":                    entryNotRead,
	"failed to get last log index":               entryNotRead,
	"skipping application of old log":            quiet,
	"got unexpected command":                     unknownCall,
	"expected heartbeat, got":                    unknownCall,

	// members
	"initial configuration":                      quiet,
	"updating configuration":                     quiet,
	"added peer, starting replication":           quiet,
	"updating peer":                              quiet,
	"removed peer, stopping replication":         quiet,
	"removed ourself, shutting down":             quiet,
	"removed ourself, transitioning to follower": quiet,
	"could not get configuration for stats":      quiet,

	// snapshots of this node
	"starting snapshot up to":                       quiet,
	"creating new snapshot":                         quiet,
	"snapshot complete up to":                       quiet,
	"reaping snapshot":                              quiet,
	"compacting logs":                               quiet,
	"no logs to truncate":                           quiet,
	"removing all old logs from log store":          quiet,
	"starting restore from snapshot":                quiet,
	"restored from snapshot":                        quiet,
	"restored user snapshot":                        quiet,
	"snapshot restore progress":                     quiet,
	"found temporary snapshot":                      quiet,
	"failed to take snapshot":                       {text: "cannot take a snapshot", level: hclog.Error},
	"failed to make snapshot directly":              snapshotNotKept,
	"failed to write metadata":                      snapshotNotKept,
	"failed to create state file":                   snapshotNotKept,
	"failed to finalize snapshot":                   snapshotNotKept,
	"failed to move snapshot into place":            snapshotNotKept,
	"failed to open snapshot parent directory":      snapshotNotKept,
	"failed syncing parent directory":               snapshotNotKept,
	"failed to create snapshot to install":          snapshotNotKept,
	"failed to delete temporary snapshot directory": {text: "cannot remove an unfinished snapshot", level: hclog.Error},
	"failed to reap snapshot":                       {text: "cannot remove an old snapshot", level: hclog.Error},
	"failed to remove old logs":                     entriesNotGone,
	"failed to reset logs":                          entriesNotGone,
	"failed to compact logs":                        entriesNotGone,
	"failed to list snapshots":                      snapshotsUnknown,
	"failed to get snapshots":                       snapshotsUnknown,
	"failed to scan snapshot directory":             snapshotsUnknown,
	"failed to open snapshot":                       snapshotNotRead,
	"failed to get meta data to open snapshot":      snapshotNotRead,
	"failed to open state file":                     snapshotNotRead,
	"failed to read state file":                     snapshotNotRead,
	"state file seek failed":                        snapshotNotRead,
	"failed to restore snapshot":                    snapshotNotRead,
	"failed to read metadata":                       {text: "a snapshot cannot be read: it is not used", level: hclog.Warn},
	"snapshot version not supported":                {text: "a snapshot has an unknown format: it is not used", level: hclog.Warn},
	"CRC checksum failed":                           {text: "a snapshot is damaged", level: hclog.Error},

	// snapshots for other nodes
	"opening snapshot":                   quiet,
	"installing snapshot on":             {text: "sending a snapshot to a node that lacks old entries", level: hclog.Info},
	"installSnapshot rejected to":        {text: "a node has refused a snapshot", level: hclog.Warn},
	"failed to install snapshot":         unreached,
	"copied to local snapshot":           quiet,
	"snapshot network transfer progress": quiet,
	"failed to copy snapshot":            snapshotMissed,
	"failed to receive whole snapshot":   snapshotMissed,
	"Installed remote snapshot":          {text: "installed a snapshot of the leader", level: hclog.Info},
	"ignoring installSnapshot request with older term than current term": quiet,

	// connections: package peerport accepts them
	"unable to get address for server, using fallback address": quiet,
	"failed to accept connection":                              {text: "cannot accept connections of raft", level: hclog.Error},
	"failed to decode incoming command":                        quiet,
	"failed to flush response":                                 quiet,
}
