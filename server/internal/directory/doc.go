// Package directory keeps what a node knows about the members of its cluster, and decides what the node thinks of
// a caller on its peer port.
//
// The members are part of the replicated state. The directory also stores them, because a node must decide which
// callers to trust before it has applied its log. A caller that is not recorded may be a member that was added while this node
// was down. So the directory asks the recorded members about it, and caches their answers.
//
// *Directory implements most of peerport.Identity.
package directory
