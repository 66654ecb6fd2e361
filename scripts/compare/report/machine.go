package report

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Machine describes the machine on which the comparison runs.
type Machine struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	MemoryBytes int64  `json:"memoryBytes"`
	Kernel      string `json:"kernel"`
}

// String describes it on one line.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %.0f GiB, Linux %s", m.CPU, m.Cores, float64(m.MemoryBytes)/(1<<30), m.Kernel)
}

// ThisMachine describes this machine. What is not available is "unknown".
func ThisMachine() Machine {
	return Machine{
		CPU:         valueIn("/proc/cpuinfo", "model name"),
		Cores:       runtime.NumCPU(),
		MemoryBytes: kibibytes(valueIn("/proc/meminfo", "MemTotal")),
		Kernel:      kernel(),
	}
}

func kernel() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

func valueIn(path, key string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	return value(string(text), key)
}

// value returns the value of the first line with that key in a text of "key: value" lines.
func value(text, key string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// kibibytes parses a text like "16384 kB" and returns bytes; 0 if it is something else.
func kibibytes(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(text, " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// syncs is the number of writes that are timed.
const syncs = 100

// Fsync returns the time of a write of 4 KiB with its fdatasync, to a preallocated file in dir, in
// milliseconds: the median of several. It is the minimum cost of a durable commit.
func Fsync(dir string) (float64, error) {
	path := filepath.Join(dir, "fsync")
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer os.Remove(path)
	defer file.Close()
	block := make([]byte, 4096)
	if _, err := file.Write(make([]byte, syncs*len(block))); err != nil {
		return 0, err
	}
	if err := file.Sync(); err != nil {
		return 0, err
	}
	var took []float64
	for i := range syncs {
		started := time.Now()
		if _, err := file.WriteAt(block, int64(i*len(block))); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(file.Fd())); err != nil {
			return 0, os.NewSyscallError("fdatasync", err)
		}
		took = append(took, float64(time.Since(started))/float64(time.Millisecond))
	}
	return Median(took), nil
}

// tmpfs is the type of file systems in memory.
const tmpfs = 0x01021994

// OnDisk returns an error if files in dir are in memory: durability would cost nothing there, and the
// comparison would mean nothing.
func OnDisk(dir string) error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return os.NewSyscallError("statfs "+dir, err)
	}
	if s.Type == tmpfs {
		return fmt.Errorf("%s is in memory: name a directory on a disk with --dir", dir)
	}
	return nil
}
