package server

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// TestBackupsAreValidated verifies that each mistake is reported in one line that names its flag.
func TestBackupsAreValidated(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"none":               {func(*Config) {}, ""},
		"a directory":        {func(c *Config) { c.BackupDir = dir }, ""},
		"a bucket too":       {func(c *Config) { c.BackupDir, c.BackupS3 = dir, "s3://locks/prod?endpoint=minio:9000" }, ""},
		"no such directory":  {func(c *Config) { c.BackupDir = filepath.Join(dir, "nowhere") }, "--backup-dir " + dir + "/nowhere: create a directory in which the node may write: no such file or directory"},
		"no cron expression": {func(c *Config) { c.BackupSchedule = "nightly" }, `--backup-schedule "nightly": write five fields`},
		"a date never":       {func(c *Config) { c.BackupSchedule = "0 0 30 2 *" }, "there is no such date"},
		"a negative number":  {func(c *Config) { c.BackupKeep = -1 }, "--backup-keep -1: use at least 1"},
		"another URL":        {func(c *Config) { c.BackupDir, c.BackupS3 = dir, "https://locks" }, "--backup-s3: write it as s3://BUCKET/PREFIX"},
		"only a bucket":      {func(c *Config) { c.BackupS3 = "s3://locks" }, "--backup-s3 needs --backup-dir"},
	} {
		cfg := Defaults()
		cfg.ID, cfg.DataDir = "n1", dir
		c.change(&cfg)
		err := cfg.Validate()
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestUnwiseBackups verifies that a cluster without backups, and backups beside the data, are warned about.
func TestUnwiseBackups(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		backups string
		cluster int
		want    string
	}{
		"a single node without": {"", 0, ""},
		"a cluster without":     {"", 3, "no --backup-dir"},
		"elsewhere":             {dir + "-backups", 3, ""},
		"the data directory":    {dir, 3, "inside of --data-dir"},
		"below it":              {filepath.Join(dir, "backups", ".."), 3, "inside of --data-dir"},
		"above it":              {filepath.Dir(dir), 3, ""},
	} {
		cfg := Config{DataDir: dir, BackupDir: c.backups, Cluster: make([]Peer, c.cluster)}
		got := strings.Join(cfg.backupWarnings(), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
