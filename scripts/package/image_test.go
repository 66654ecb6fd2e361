//go:build linux

package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// packedImage returns the image for this machine's architecture from the archive.
func packedImage(t *testing.T) v1.Image {
	t.Helper()
	dir := t.TempDir()
	untar(t, artifact(t, "quorumlock-1.0.0-image.tar"), dir)
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(outer); err != nil {
		t.Error(err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.0.0" {
		t.Fatalf("the archive has %+v", manifest.Manifests)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(manifest.Manifests, func(d v1.Descriptor) bool {
		return d.Platform != nil && d.Platform.OS == "linux" && d.Platform.Architecture == host.arch
	})
	if i < 0 {
		t.Fatalf("the index has no image for %s: %+v", host, manifest.Manifests)
	}
	image, err := index.Image(manifest.Manifests[i].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestImageConfiguration(t *testing.T) {
	config, err := packedImage(t).ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if config.OS != "linux" || config.Architecture != host.arch || c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/bin/qlockd"}) {
		t.Errorf("%s/%s, user %q, entry point %q", config.OS, config.Architecture, c.User, c.Entrypoint)
	}
	if c.Labels["org.opencontainers.image.version"] != "1.0.0" || c.Labels["org.opencontainers.image.title"] != "Quorumlock" {
		t.Errorf("labels %v", c.Labels)
	}
	if _, ok := c.Volumes[stateDir]; !ok || len(c.ExposedPorts) != 3 || !slices.Contains(c.Env, "QLOCKD_DATA_DIR="+stateDir) {
		t.Errorf("volumes %v, ports %v, environment %v", c.Volumes, c.ExposedPorts, c.Env)
	}
}

// isolate runs a command as a user, in namespaces with the files of an image, none of which it can change, and a volume.
// A new volume has the owner of the directory in the image, as with container engines.
const isolate = `set -e
cd "$0"
user=$1
shift
mkdir data
chown --reference=root` + stateDir + ` data
mount --make-rprivate /
mount --bind root root
mount --bind data root` + stateDir + `
mount -o remount,bind,ro root
ip link set lo up
exec chroot --userspec=$user root "$@"`

// TestImageRuns runs the image as its configuration says, without root, with a read-only file system, and takes a lock.
func TestImageRuns(t *testing.T) {
	image := packedImage(t)
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if os.Getuid() != 0 {
		t.Skip("it takes root to run an image")
	}
	files := mutate.Extract(image)
	if err := errors.Join(extract(files, filepath.Join(dir, "root")), files.Close()); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-c", isolate, dir, config.Config.User}, config.Config.Entrypoint...)
	cmd := exec.Command("sh", append(args, "--id", "n1")...)
	cmd.Env = config.Config.Env
	cmd.Env = append(cmd.Env[:len(cmd.Env):len(cmd.Env)], "PATH="+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	awaitServing(t, log)

	pid := strconv.Itoa(cmd.Process.Pid)
	enter := []string{"nsenter", "--target", pid, "--mount", "--net", "--root", "--wd", "--setuid", "65532", "--setgid", "65532"}
	if out := command(t, enter, "/usr/bin/qlock", "acquire", "orders/42", "--timeout", "30s"); out == "" {
		t.Error("qlock acquire printed no lease")
	}
	if out := command(t, enter, "/usr/bin/qlock", "show", "orders/42"); !strings.Contains(out, "held by") {
		t.Errorf("qlock show: %s", out)
	}
	if err := os.WriteFile("/proc/"+pid+"/root/usr/bin/other", nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a write to the file system of the image: %v", err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// awaitServing waits until the log says that the node serves, and reads on, so that the node can write. The channel is
// closed at the end of the log.
func awaitServing(t *testing.T, log io.Reader) (ended <-chan struct{}) {
	t.Helper()
	serving, end := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(end)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if strings.Contains(lines.Text(), "serving: node=n1") {
				serving <- struct{}{}
			}
		}
	}()
	select {
	case <-serving:
	case <-end:
		t.Fatal("the node ended before it served")
	case <-time.After(time.Minute):
		t.Fatal("the node does not say that it serves")
	}
	return end
}

// TestDockerfileFaults verifies that an instruction is either interpreted or refused.
func TestDockerfileFaults(t *testing.T) {
	for text, want := range map[string]string{
		"FROM debian": "from scratch only", "RUN true": "not known", "ARG OTHER": "no value for OTHER",
		"COPY a b": "each with a slash", "COPY --chown=nobody a/ b/": "UID:GID", "ENTRYPOINT qlockd": "invalid character",
	} {
		if _, err := parseDockerfile([]byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
