package monitoring_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/ports"
	"github.com/quorumlock/quorumlock/test/process"
)

// full enables the tests that take minutes, and the installation of what is missing.
var full = os.Getenv("QUORUMLOCK_CHECK") == "1"

// installTimeout bounds the installation of Debian's package.
const installTimeout = 10 * time.Minute

var errMissing = errors.New("there is no Prometheus on this machine: install Debian's package prometheus")

// install installs Debian's package, without starting its service.
func install() error {
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "prometheus"}} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get: %w\n%s", err, out)
		}
	}
	return nil
}

// present returns an error if Prometheus is missing and could not be installed.
var present = sync.OnceValue(func() (err error) {
	missing := func() bool {
		_, server := exec.LookPath("prometheus")
		_, tool := exec.LookPath("promtool")
		return server != nil || tool != nil
	}
	if missing() && full {
		err = install()
	}
	if missing() {
		return errors.Join(errMissing, err)
	}
	return nil
})

// needsPrometheus skips the test without Prometheus, or fails it in a complete check.
func needsPrometheus(t *testing.T) {
	t.Helper()
	switch err := present(); {
	case err != nil && full:
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
}

// monitor is a running Prometheus, on loopback and with a data directory of its own.
type monitor struct {
	t    *testing.T
	base string
}

// startMonitor starts Prometheus with the configuration in a directory. It ends with the test.
func startMonitor(t *testing.T, dir string) *monitor {
	t.Helper()
	addr := ports.For(t, 1)[0]
	log, err := os.Create(filepath.Join(dir, "prometheus.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", addr, "--log.level", "warn")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(process.WaitTimeout, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait() // it was ended
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("log of Prometheus:\n%s", text)
		}
	})
	return &monitor{t, "http://" + addr}
}

// get calls the HTTP API and decodes its data.
func (m *monitor) get(ctx context.Context, path string, params url.Values, data any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.base+path+"?"+params.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %s: %w", path, resp.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s: %s", path, resp.Status, answer.Error)
	}
	return nil
}

// sample is one value of an expression.
type sample struct {
	Metric map[string]string
	Value  [2]any // the time, and the number as a text
}

func (s sample) number() float64 {
	text, _ := s.Value[1].(string)
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return number
}

// query evaluates an expression now.
func (m *monitor) query(ctx context.Context, expr string) ([]sample, error) {
	var data struct{ Result []sample }
	err := m.get(ctx, "/api/v1/query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}

// labelValues returns the values of a label of the series that a selector matches.
func (m *monitor) labelValues(ctx context.Context, name, matches string) (values []string, err error) {
	err = m.get(ctx, "/api/v1/label/"+name+"/values", url.Values{"match[]": {matches}}, &values)
	return values, err
}

// alert is an alert that is pending or fires.
type alert struct {
	State               string
	Labels, Annotations map[string]string
}

// firing returns the alerts that fire.
func (m *monitor) firing(ctx context.Context) (firing []alert, err error) {
	var data struct{ Alerts []alert }
	err = m.get(ctx, "/api/v1/alerts", nil, &data)
	for _, a := range data.Alerts {
		if a.State == "firing" {
			firing = append(firing, a)
		}
	}
	return firing, err
}
