// Package examine lets a node examine itself for qlock doctor: how long its disk takes to sync, how much room is left,
// whether limits of the system fit its own, and whether its clock was set.
package examine
