package client

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// clientInfo says who we are, for people who look at who holds what.
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

// identity does not change while the process runs.
type identity struct {
	host, boot string
	started    int64
}

// loaded is close to the start of the process, for where the system does not tell it.
var loaded = time.Now().UnixMilli()

var process = sync.OnceValue(func() identity {
	host, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return identity{host: host, boot: strings.TrimSpace(string(boot)), started: processStart()}
})

// processStart is when the process began, in milliseconds since 1970. On Linux that is
// in clock ticks since boot, the field 22 of stat, of which there are 100 in a second.
func processStart() int64 {
	const ticksToMs = 10
	stat, _ := os.ReadFile("/proc/self/stat")
	_, rest, _ := bytes.Cut(stat, []byte(") ")) // behind the program's name
	fields := strings.Fields(string(rest))
	system, _ := os.ReadFile("/proc/stat")
	_, after, ok := strings.Cut(string(system), "\nbtime ")
	if !ok || len(fields) < 20 {
		return loaded
	}
	btime, _, _ := strings.Cut(after, "\n")
	booted, err1 := strconv.ParseInt(btime, 10, 64)
	ticks, err2 := strconv.ParseInt(fields[19], 10, 64)
	if err1 != nil || err2 != nil {
		return loaded
	}
	return booted*1000 + ticks*ticksToMs
}
