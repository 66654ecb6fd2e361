package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// group is a process group, named by the pid of its first process. While any process
// is in it the kernel gives that number to nobody else.
type group int

// signal sends to every process of the group. An empty group is no error.
func (g group) signal(sig syscall.Signal) error {
	if err := syscall.Kill(-int(g), sig); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("signal process group %d: %w", g, err)
	}
	return nil
}

// alive tells whether any process of the group may still run. Dead ones that their
// parent has not yet buried do not count.
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
	return !seen // without a /proc to look at, the signal's word counts
}

// stat is what is read of /proc/PID/stat.
type stat struct {
	dead   bool
	parent int
	group  int
	halted bool // by a signal
}

// parseStat reads "pid (comm) state ppid pgrp …", where comm may contain anything.
func parseStat(text []byte) (stat, bool) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 3 {
		return stat{}, false
	}
	parent, parentErr := strconv.Atoi(string(fields[1]))
	group, groupErr := strconv.Atoi(string(fields[2]))
	return stat{bytes.ContainsAny(fields[0], "ZXx"), parent, group, bytes.ContainsAny(fields[0], "Tt")}, parentErr == nil && groupErr == nil
}

// stopped reports whether a process is stopped by a signal; true where nobody knows.
func stopped(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	stat, ok := parseStat(text)
	return !ok || stat.halted
}
