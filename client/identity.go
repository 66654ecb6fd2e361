package client

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// clientInfo describes the client to people who inspect a lock.
func clientInfo(opts SessionOptions) *wire.ClientInfo {
	self := process()
	info := &wire.ClientInfo{
		Name:               opts.Name,
		HostName:           wire.CleanText(self.host, maxOwnText),
		BootId:             wire.CleanText(self.boot, maxOwnText),
		Pid:                int32(os.Getpid()),
		ProcessStartUnixMs: self.started,
	}
	for _, key := range slices.Sorted(maps.Keys(opts.Labels)) {
		info.Labels = append(info.Labels, &wire.Label{Key: key, Value: opts.Labels[key]})
	}
	return info
}

// ClientInfo describes the owner of a session to people. It proves nothing: clients choose it themselves,
// except for Address.
type ClientInfo struct {
	// Name and Labels are those of [SessionOptions].
	Name   string
	Labels map[string]string
	// HostName, BootID and PID identify the process, which started at ProcessStart.
	HostName     string
	BootID       string
	PID          int
	ProcessStart time.Time
	// Address is the address that the node saw.
	Address string
}

// clientInfoOf converts a description from wire format.
func clientInfoOf(info *wire.ClientInfo) ClientInfo {
	if info == nil {
		return ClientInfo{}
	}
	out := ClientInfo{Name: info.GetName(), HostName: info.GetHostName(), BootID: info.GetBootId(), PID: int(info.GetPid()), Address: info.GetAddress()}
	if ms := info.GetProcessStartUnixMs(); ms != 0 {
		out.ProcessStart = time.UnixMilli(ms)
	}
	for _, label := range info.GetLabels() {
		if out.Labels == nil {
			out.Labels = make(map[string]string, len(info.GetLabels()))
		}
		out.Labels[label.GetKey()] = label.GetValue()
	}
	return out
}

// processInfo describes the process; it does not change while the process runs.
type processInfo struct {
	host, boot string
	started    int64
}

// loaded approximates the start of the process on systems that do not report it.
var loaded = time.Now().UnixMilli()

var process = sync.OnceValue(func() processInfo {
	host, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return processInfo{host: host, boot: strings.TrimSpace(string(boot)), started: processStart()}
})

// processStart returns when the process started, in milliseconds since 1970. Linux reports it in field 22
// of /proc/self/stat, in clock ticks since boot; a second has 100 ticks.
func processStart() int64 {
	stat, _ := os.ReadFile("/proc/self/stat")
	system, _ := os.ReadFile("/proc/stat")
	if ms, ok := startOf(string(stat), string(system)); ok {
		return ms
	}
	return loaded
}

// startOf computes when a process started from its stat file and that of the system.
func startOf(stat, system string) (ms int64, ok bool) {
	const ticksToMs = 10
	// The program's name may contain any characters.
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	_, after, _ := strings.Cut(system, "\nbtime ")
	if len(fields) < 20 {
		return 0, false
	}
	btime, _, _ := strings.Cut(after, "\n")
	booted, err1 := strconv.ParseInt(btime, 10, 64)
	ticks, err2 := strconv.ParseInt(fields[19], 10, 64)
	return booted*1000 + ticks*ticksToMs, err1 == nil && err2 == nil
}
