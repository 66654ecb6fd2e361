package main

import (
	"context"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/hashicorp/go-hclog"
)

// serviceManager is the process that has started this one and expects notifications, such as systemd for a unit with
// Type=notify. Without one, nothing is sent.
type serviceManager struct {
	// send sends assignments like READY=1, one per line.
	send func(state string)
	// watchdog is how long the manager waits for a sign of life before it ends this process; 0 for ever.
	watchdog time.Duration
}

// newServiceManager returns the manager that the environment names.
func newServiceManager(log hclog.Logger) serviceManager {
	watchdog, err := systemd.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the service manager's watchdog gets no signs of life: correct or unset WATCHDOG_USEC and WATCHDOG_PID", "error", err)
	}
	return serviceManager{watchdog: watchdog, send: func(state string) {
		if _, err := systemd.SdNotify(false, state); err != nil {
			log.Warn("the service manager could not be notified: check NOTIFY_SOCKET", "step", state, "error", err)
		}
	}}
}

// serving reports that the ports serve. It does not wait for a leader: a manager that starts the first node of a cluster
// would wait for the others, give up, and stop the node that the others need. /readyz reports whether there is a leader.
//
// Until stop is called, it then sends a sign of life twice per watchdog interval, with the node's condition. It asks for
// the condition first, and waits for the answer: a node that hangs sends none.
func (m serviceManager) serving(condition func(context.Context) string) (stop func()) {
	m.send(systemd.SdNotifyReady)
	ctx, cancel := context.WithCancel(context.Background())
	if m.watchdog > 0 {
		go m.feedWatchdog(ctx, condition)
	}
	return cancel
}

func (m serviceManager) feedWatchdog(ctx context.Context, condition func(context.Context) string) {
	ticker := time.NewTicker(m.watchdog / 2)
	defer ticker.Stop()
	for {
		status := condition(ctx)
		if ctx.Err() != nil {
			return
		}
		m.send(systemd.SdNotifyWatchdog + "\nSTATUS=" + status)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// stopping reports that the process has begun to stop.
func (m serviceManager) stopping() { m.send(systemd.SdNotifyStopping) }
