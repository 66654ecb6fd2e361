package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestShippedRequestsAreTheGenerators(t *testing.T) {
	fresh := filepath.Join(t.TempDir(), "refunds.csv")
	if err := write(fresh, generate(3200, 16*time.Second)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(fresh)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../refunds.csv")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("refunds.csv is not what this program makes: run go generate ./scripts/demo")
	}
}
