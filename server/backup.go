package server

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/quorumlock/quorumlock/server/internal/backup/schedule"
	"github.com/quorumlock/quorumlock/server/internal/backup/store"
)

// openBackups returns the schedule and the stores of backups, or all that is wrong with them.
func (c Config) openBackups() (schedule.Config, []error) {
	var faults []error
	if _, err := schedule.Parse(c.BackupSchedule); err != nil {
		faults = append(faults, fmt.Errorf("--backup-schedule %q: %w", c.BackupSchedule, err))
	}
	if c.BackupKeep < 0 {
		faults = append(faults, fmt.Errorf("--backup-keep %d: use at least 1, or 0 to keep all", c.BackupKeep))
	}
	cfg := schedule.Config{Schedule: c.BackupSchedule, Keep: c.BackupKeep}
	if c.BackupDir != "" {
		dir, err := store.OpenDirectory(c.BackupDir)
		if err != nil {
			faults = append(faults, fmt.Errorf("--backup-dir %s: create a directory in which the node may write: %w", c.BackupDir, err))
		}
		cfg.Stores = append(cfg.Stores, dir)
	}
	if c.BackupS3 != "" {
		bucket, err := store.OpenBucket(c.BackupS3)
		if err != nil {
			faults = append(faults, fmt.Errorf("--backup-s3: %w", err))
		}
		cfg.Stores = append(cfg.Stores, bucket)
	}
	if c.BackupS3 != "" && c.BackupDir == "" {
		faults = append(faults, errors.New("--backup-s3 needs --backup-dir: backups are written and verified there before they are uploaded"))
	}
	return cfg, faults
}

func (c Config) checkBackups() []error {
	_, faults := c.openBackups()
	return faults
}

func (c Config) backupWarnings() []string {
	switch {
	case c.BackupDir == "" && len(c.Cluster) > 0:
		return []string{"no --backup-dir: nothing is backed up unless somebody runs qlock snapshot save"}
	case c.BackupDir != "" && within(c.BackupDir, c.DataDir):
		return []string{"--backup-dir is inside of --data-dir: whatever destroys the data destroys the backups too"}
	}
	return nil
}

// within reports whether a path is a directory or below it. An empty directory contains nothing.
func within(path, dir string) bool {
	if dir == "" {
		return false
	}
	path, pathErr := filepath.Abs(path)
	dir, dirErr := filepath.Abs(dir)
	if pathErr != nil || dirErr != nil {
		return false
	}
	below, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(below)
}
