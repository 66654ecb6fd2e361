package hostile

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const (
	// stallBound is how long the machine's disk may take for a small write. All nodes share that disk, and a
	// leader whose followers cannot write for half a second steps down, whatever its callers do.
	stallBound = 250 * time.Millisecond
	// probeBytes are written and synced every probeInterval.
	probeBytes    = 4096
	probeInterval = 50 * time.Millisecond
)

// diskProbe writes to the nodes' disk, beside them, and measures how long that takes. It shows whether the
// machine stalled, rather than a node.
type diskProbe struct {
	file  *os.File
	quit  context.CancelFunc
	ended chan struct{}
	worst time.Duration // read it after ended
}

func startDiskProbe(t *testing.T) *diskProbe {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "probe"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, quit := context.WithCancel(context.Background())
	p := &diskProbe{file: file, quit: quit, ended: make(chan struct{})}
	t.Cleanup(func() { p.end() })
	go p.run(ctx, t)
	return p
}

func (p *diskProbe) run(ctx context.Context, t *testing.T) {
	defer close(p.ended)
	defer p.file.Close()
	data := make([]byte, probeBytes)
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		data[0]++
		started := time.Now()
		if _, err := p.file.WriteAt(data, 0); err != nil {
			t.Error(err)
		}
		if err := p.file.Sync(); err != nil {
			t.Error(err)
		}
		p.worst = max(p.worst, time.Since(started))
	}
}

// end stops the probe and returns the longest duration of a write.
func (p *diskProbe) end() time.Duration {
	p.quit()
	<-p.ended
	return p.worst
}
