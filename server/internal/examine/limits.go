package examine

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
)

// machineMemory returns the memory of the container, or else of the machine, in bytes; 0 if it is unknown.
func machineMemory() uint64 {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	total := memoryTotal(info)
	if limit, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if n, err := strconv.ParseUint(strings.TrimSpace(string(limit)), 10, 64); err == nil && n < total {
			return n
		}
	}
	return total
}

// memoryTotal returns MemTotal of /proc/meminfo.
func memoryTotal(info []byte) uint64 {
	for lines := bufio.NewScanner(bytes.NewReader(info)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			n, _ := strconv.ParseUint(fields[1], 10, 64)
			return n << 10
		}
	}
	return 0
}
