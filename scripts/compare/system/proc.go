package system

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of CPU time in /proc: USER_HZ is 100 wherever Linux runs Go.
const tick = 10 * time.Millisecond

// Positions of utime, stime and rss in /proc/<pid>/stat, counted from 0 after the name.
const (
	userField     = 11
	systemField   = 12
	residentField = 21
)

// cpu returns the CPU time of a process, in user and kernel mode together.
func cpu(pid int) (time.Duration, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	return time.Duration(fields[userField]+fields[systemField]) * tick, nil
}

// memory returns the resident memory of a process, in bytes.
func memory(pid int) (int64, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	return fields[residentField] * int64(os.Getpagesize()), nil
}

func stat(pid int) ([]int64, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fields, err := parseStat(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return fields, nil
}

// parseStat returns the numbers after the name. The state, which is a letter, is 0. The name may contain
// blanks and parentheses.
func parseStat(text []byte) ([]int64, error) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return nil, fmt.Errorf("no name in %q", text)
	}
	words := bytes.Fields(text[end+1:])
	if len(words) <= residentField {
		return nil, fmt.Errorf("only %d fields behind the name", len(words))
	}
	fields := make([]int64, len(words))
	for i, word := range words[1 : residentField+1] {
		n, err := strconv.ParseInt(string(word), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("field %d: %w", i+1, err)
		}
		fields[i+1] = n
	}
	return fields, nil
}
