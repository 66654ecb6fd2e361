//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
)

// group is a process group, identified by the pid of its first process. While the group has any process,
// the kernel does not reuse that number.
type group int

// signal sends a signal to every process of the group. An empty group is not an error.
func (g group) signal(sig syscall.Signal) error {
	if err := syscall.Kill(-int(g), sig); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("signal process group %d: %w", g, err)
	}
	return nil
}

// alive reports whether any process of the group may still run. Zombies do not count.
func (g group) alive() bool {
	if syscall.Kill(-int(g), 0) == syscall.ESRCH {
		return false
	}
	members, known := g.members()
	return !known || len(members) > 0 // without /proc, the result of the signal decides
}

// members returns the processes of the group that are not dead. known is false without /proc.
func (g group) members() (pids []int, known bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		p, ok := readStat(pid)
		known = known || ok
		if ok && p.group == int(g) && !p.dead {
			pids = append(pids, pid)
		}
	}
	return pids, known
}

// stopCheck checks whether a process group is stopped. It remembers the processes that it found stopped,
// since those start no others and /proc may be large.
type stopCheck struct{ pids []int }

// halted reports whether no process of the group can run: all of them are stopped or dead. If the group is
// being stopped, a process that waits in the kernel counts as well, since it stops before it returns from
// there. Without /proc, it returns stopping.
func (c *stopCheck) halted(g group, stopping bool) bool {
	still := func(pid int) bool {
		p, ok := readStat(pid)
		return !ok || p.group != int(g) || p.dead || p.halted || stopping && p.waits
	}
	runs := func(pid int) bool { return !still(pid) }
	if len(c.pids) > 0 && !slices.ContainsFunc(c.pids, runs) {
		return true
	}
	pids, known := g.members()
	c.pids = nil
	if !known || slices.ContainsFunc(pids, runs) {
		return !known && stopping
	}
	c.pids = pids
	return true
}

// stat holds fields of /proc/PID/stat.
type stat struct {
	dead   bool
	parent int
	group  int
	halted bool // stopped by a signal
	waits  bool // in an uninterruptible wait
}

// readStat reads the stat of a process. ok is false if it is unknown.
func readStat(pid int) (s stat, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	return parseStat(text)
}

// parseStat parses "pid (comm) state ppid pgrp …", where comm may contain anything.
func parseStat(text []byte) (stat, bool) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 3 {
		return stat{}, false
	}
	parent, parentErr := strconv.Atoi(string(fields[1]))
	group, groupErr := strconv.Atoi(string(fields[2]))
	return stat{bytes.ContainsAny(fields[0], "ZXx"), parent, group, bytes.ContainsAny(fields[0], "Tt"), bytes.Equal(fields[0], []byte("D"))}, parentErr == nil && groupErr == nil
}

// stopped reports whether a process is stopped by a signal. It returns true if that is unknown.
func stopped(pid int) bool {
	stat, ok := readStat(pid)
	return !ok || stat.halted
}
