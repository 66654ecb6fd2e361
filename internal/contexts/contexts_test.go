package contexts_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/internal/contexts"
)

func TestContexts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "contexts")
	t.Setenv(contexts.FileVariable, path)
	f, err := contexts.Load()
	if err != nil || len(f.Names()) != 0 {
		t.Fatal(f, err)
	}
	if _, err := f.Get("prod"); err == nil || !strings.Contains(err.Error(), "qlock context save") {
		t.Error(err)
	}
	prod := contexts.Context{Endpoints: []string{"a:7400", "b:7400"}, CACert: "/ca", Cert: "/cert", Key: "/key"}
	f.Contexts["prod"], f.Contexts["dev"], f.Current = prod, contexts.Context{Endpoints: []string{"c:7400"}}, "prod"
	if err := f.Save(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	again, err := contexts.Load()
	if err != nil || again.Current != "prod" || strings.Join(again.Names(), ",") != "dev,prod" {
		t.Fatal(again, err)
	}
	if got, err := again.Get("prod"); err != nil || !reflect.DeepEqual(got, prod) {
		t.Error(got, err)
	}
	if _, err := again.Get("pord"); err == nil || !strings.Contains(err.Error(), "dev, prod") {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := contexts.Load(); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}
