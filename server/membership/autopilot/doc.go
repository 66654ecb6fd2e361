// Package autopilot watches the health of the members while this node leads, and takes the decisions that follow from it:
// when a new member has been healthy for long enough to get its vote, how many voters may still fail, and which member
// has been dead for so long that it is removed.
//
// The decisions are those of github.com/hashicorp/raft-autopilot. It gets raft's configuration and index, and nothing to
// change them with: a promotion or a removal that it asks for is carried out by package membership, which keeps
// identities, audit records and majorities right, and it moves no leadership.
//
// What a leader knows of its members ends with its leadership. The next leader starts to count again, so a change of
// leaders delays a removal, and never hastens it.
package autopilot
