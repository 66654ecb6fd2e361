package storage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
)

// TestIdentityInGivenStores verifies that with given stores, the identity is the given one or is kept in the
// stores, and needs no file.
func TestIdentityInGivenStores(t *testing.T) {
	stable := raft.NewInmemStore()
	o := Options{NodeID: "n1", DataDir: t.TempDir(), Backend: Backend{Log: stable}}
	minted, err := openIdentity(o, stable)
	if err != nil || minted == "" {
		t.Fatalf("minted %q, %v", minted, err)
	}
	if again, err := openIdentity(o, stable); err != nil || again != minted {
		t.Errorf("incarnation %q became %q, %v", minted, again, err)
	}
	other := o
	other.NodeID = "n2"
	if _, err := openIdentity(other, stable); !errors.Is(err, ErrOtherNode) {
		t.Errorf("the stores of another node were taken: %v", err)
	}
	o.Backend.Incarnation = "i1"
	if given, err := openIdentity(o, stable); err != nil || given != "i1" {
		t.Errorf("incarnation %q, %v", given, err)
	}
	if found, err := os.ReadDir(o.DataDir); err != nil || len(found) != 0 {
		t.Errorf("it left %v, %v", found, err)
	}
	o.Backend.Log = nil // an incarnation is ignored if no log is given
	if kept, err := openIdentity(o, stable); err != nil || kept != minted {
		t.Errorf("incarnation %q, %v, want %q", kept, err, minted)
	}
}

// TestIdentityThatIsNotKept verifies that a failure to read or write a part of the identity is returned.
func TestIdentityThatIsNotKept(t *testing.T) {
	for name, store := range map[string]*refusing{
		"the node is not read":           {read: string(nodeKey)},
		"the node is not written":        {key: string(nodeKey)},
		"the incarnation is not read":    {read: string(incarnationKey)},
		"the incarnation is not written": {key: string(incarnationKey)},
	} {
		store.InmemStore = raft.NewInmemStore()
		o := Options{NodeID: "n1", DataDir: t.TempDir()}
		if _, err := openIdentity(o, store); !errors.Is(err, errDisk) {
			t.Errorf("%s: %v", name, err)
		}
		if found, err := os.ReadDir(o.DataDir); err != nil || len(found) != 0 {
			t.Errorf("%s: it left %v, %v", name, found, err)
		}
	}
}

// TestIdentityFilesThatAreNotRead checks a missing file, paths that are not files, and a file of a newer
// program.
func TestIdentityFilesThatAreNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), identityFile)
	if file, err := readIdentity(path); file != nil || err != nil {
		t.Errorf("no file: %v, %v", file, err)
	}
	for format, says := range map[string]string{"0": "", "1": "", "2": "it has format 2, and this program knows formats up to 1"} {
		if err := os.WriteFile(path, []byte(`{"format": `+format+`}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readIdentity(path); errors.Is(err, ErrIdentityFile) != (says != "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("format %s: %v", format, err)
		}
	}
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := readIdentity(path); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("a directory: %v", err)
	}
	if _, err := openIdentity(Options{NodeID: "n1", DataDir: filepath.Dir(path)}, raft.NewInmemStore()); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("opened with a directory: %v", err)
	}
	if err := replaceFile(path, nil); err == nil {
		t.Error("a directory was replaced")
	}
}
