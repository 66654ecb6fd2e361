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

// Machine is what the comparison runs on.
type Machine struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	MemoryBytes int64  `json:"memoryBytes"`
	Kernel      string `json:"kernel"`
}

// String describes it in one line.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %.0f GiB, Linux %s", m.CPU, m.Cores, float64(m.MemoryBytes)/(1<<30), m.Kernel)
}

// ThisMachine describes the one that we are on. What it does not tell is "unknown".
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

// value finds the first line of that key in a text of keys and values with colons.
func value(text, key string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// kibibytes reads "16384 kB"; 0 if it is something else.
func kibibytes(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(text, " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// syncs is how many writes are timed.
const syncs = 100

// Fsync is how long a write of 4 KiB takes with its fdatasync, to a file in dir that need not
// grow, in milliseconds: the median of some. It is the least that a durable commit costs.
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
		begun := time.Now()
		if _, err := file.WriteAt(block, int64(i*len(block))); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(file.Fd())); err != nil {
			return 0, os.NewSyscallError("fdatasync", err)
		}
		took = append(took, float64(time.Since(begun))/float64(time.Millisecond))
	}
	return median(took), nil
}

// tmpfs is the mark of file systems that are memory.
const tmpfs = 0x01021994

// OnDisk returns an error if what is written to dir goes to memory: there, durability costs
// nothing, and the comparison says nothing.
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
