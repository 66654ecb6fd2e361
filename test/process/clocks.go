package process

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// wallVariable is the environment variable with the path of the file that contains the offset of a node's
// wall clock in seconds.
const wallVariable = "QUORUMLOCK_TEST_WALL"

// wallPatch are replacements in the standard library's time.go. Each of the replaced texts must occur exactly
// once. They shift the wall-clock time that time.Now returns by the offset in the file, which is mapped into
// the process's memory. The monotonic clock is not changed.
var wallPatch = [][2]string{
	{"\t_ \"unsafe\" // for go:linkname\n", "\t\"syscall\"\n\t\"unsafe\"\n"},
	{"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", `func Now() Time {
	sec, nsec, mono := runtimeNow()
	if wallOff != nil {
		sec += *wallOff
	}
`},
}

const wallSource = `
var wallOff = mapWallOff()

func mapWallOff() *int64 {
	path, ok := syscall.Getenv("` + wallVariable + `")
	if !ok {
		return nil
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		panic(err)
	}
	memory, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*int64)(unsafe.Pointer(&memory[0]))
}
`

// BuildWithWalls compiles the programs like Build, but with a standard library whose wall clock can be moved
// for one process. The usual tools intercept system libraries, which Go programs do not use to read the
// clock. The first build also compiles the standard library.
func BuildWithWalls(dir string) (Programs, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	source := string(text)
	for _, change := range wallPatch {
		if strings.Count(source, change[0]) != 1 {
			return "", fmt.Errorf("the standard library has changed: %q is not once in %s", change[0], original)
		}
		source = strings.Replace(source, change[0], change[1], 1)
	}
	patched, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json")
	plan, err := json.Marshal(map[string]map[string]string{"Replace": {original: patched}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(patched, []byte(source+wallSource), 0o600); err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, plan, 0o600); err != nil {
		return "", err
	}
	return Build(dir, "-overlay", overlay)
}

// wall returns the file of a node's wall clock.
func (n *node) wall() string { return n.dir + ".wall" }

// setWall sets the offset of a node's wall clock.
func (n *node) setWall(off time.Duration) error {
	f, err := os.OpenFile(n.wall(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(off/time.Second)), 0)
	return err
}
