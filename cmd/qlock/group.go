//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
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
	pids, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	seen := false
	for _, entry := range pids {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		seen = true
		if p, ok := parseStat(text); ok && p.group == int(g) && !p.dead {
			return true
		}
	}
	return !seen // without /proc, the result of the signal decides
}

// stat holds fields of /proc/PID/stat.
type stat struct {
	dead   bool
	parent int
	group  int
	halted bool // stopped by a signal
}

// parseStat parses "pid (comm) state ppid pgrp …", where comm may contain anything.
func parseStat(text []byte) (stat, bool) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 3 {
		return stat{}, false
	}
	parent, parentErr := strconv.Atoi(string(fields[1]))
	group, groupErr := strconv.Atoi(string(fields[2]))
	return stat{bytes.ContainsAny(fields[0], "ZXx"), parent, group, bytes.ContainsAny(fields[0], "Tt")}, parentErr == nil && groupErr == nil
}

// stopped reports whether a process is stopped by a signal. It returns true if that is unknown.
func stopped(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	stat, ok := parseStat(text)
	return !ok || stat.halted
}
