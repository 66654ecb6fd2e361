package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// A lease file is written before the acquire, with the secret and hold 0. If it cannot be written, nothing
// is acquired; and if this program dies, the secret is not lost. The file is locked (flock) until the
// outcome of the acquire is known. Its first line is the lease. The other lines describe the lease for the
// next acquire that is given the same file.

// leaseRecord is the content of a lease file.
type leaseRecord struct {
	lease
	lock  string // one of its locks
	ttl   time.Duration
	until time.Time // when it ends unless it was extended elsewhere; zero if unknown
}

// String returns the content of the file.
func (r leaseRecord) String() string {
	text := r.lease.String() + "\nlock " + strconv.Quote(r.lock) + "\n"
	if !r.until.IsZero() {
		text += fmt.Sprintf("ttl %v\nuntil %s\n", r.ttl, r.until.UTC().Format(time.RFC3339Nano))
	}
	return text
}

// parseRecord parses what String returns. It ignores unknown lines.
func parseRecord(text string) (r leaseRecord, err error) {
	first, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if r.lease, err = parseWord(first); err != nil {
		return r, err
	}
	for line := range strings.Lines(rest) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch key {
		case "lock":
			r.lock, _ = strconv.Unquote(value)
		case "ttl":
			r.ttl, _ = time.ParseDuration(value)
		case "until":
			r.until, _ = time.Parse(time.RFC3339Nano, value)
		}
	}
	return r, nil
}

// leaseFile is a lease file locked by this program.
type leaseFile struct {
	file    *os.File
	path    string
	created bool // by this program
}

// openLeaseFile opens and locks a lease file, and creates it if it does not exist.
func openLeaseFile(path string) (*leaseFile, error) {
	f := &leaseFile{path: path, created: true}
	var err error
	f.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		f.created = false
		f.file, err = os.OpenFile(path, os.O_RDWR|ordinaryFile, 0)
	}
	if err != nil {
		return nil, usagef("--lease-file cannot be written: %w", err)
	}
	if err := f.lock(); err != nil {
		f.file.Close()
		return nil, err
	}
	return f, nil
}

// lock locks the file and makes it readable only by its owner.
func (f *leaseFile) lock() error {
	info, err := f.file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return usagef("--lease-file %s is no ordinary file", printable(f.path))
	}
	if lockedByOther(f.file) {
		return usagef("another qlock acquire waits for its lease with %s: choose another file", printable(f.path))
	}
	if named, statErr := os.Lstat(f.path); err == nil && (statErr != nil || !os.SameFile(info, named)) {
		return usagef("%s was replaced just now: try again, or choose another file", printable(f.path))
	}
	if err == nil && info.Mode().Perm() != 0o600 {
		err = f.file.Chmod(0o600)
	}
	if err != nil {
		return usagef("--lease-file cannot be written: %w", err)
	}
	return nil
}

// read returns the content of the file, or nil if it is empty.
func (f *leaseFile) read() (*leaseRecord, error) {
	text, err := io.ReadAll(io.LimitReader(f.file, maxLeaseText))
	if err != nil {
		return nil, usagef("read the lease: %w", err)
	}
	if len(text) == 0 {
		return nil, nil
	}
	r, err := parseRecord(string(text))
	if err != nil {
		return nil, usagef("%s exists and holds no lease: choose another file", printable(f.path))
	}
	return &r, nil
}

// write replaces the content of the file in place. The file already has about the required size, so the
// disk space rarely runs out.
func (f *leaseFile) write(r leaseRecord) error {
	text := r.String()
	if _, err := f.file.WriteAt([]byte(text), 0); err != nil {
		return err
	}
	if err := f.file.Truncate(int64(len(text))); err != nil {
		return err
	}
	return f.file.Sync()
}

// forget restores the file as it was found, except that an expired lease is removed from it.
func (f *leaseFile) forget() {
	if f.created {
		_ = os.Remove(f.path)
	} else {
		_ = f.file.Truncate(0)
	}
}

// reserveLeaseFile takes the file of --lease-file for a lease that is about to be acquired, unless the file
// contains a live one. It returns nil without --lease-file.
func reserveLeaseFile(ctx context.Context, path string, svc service, req leaseRequest) (*leaseFile, error) {
	if path == "" {
		return nil, nil
	}
	f, err := openLeaseFile(path)
	if err != nil {
		return nil, err
	}
	old, err := f.read()
	if err == nil && old != nil {
		err = checkOver(ctx, svc, path, *old)
	}
	if err == nil {
		if err = f.write(leaseRecord{lease: lease{0, req.secret}, lock: req.claim.names()[0]}); err != nil {
			f.forget()
			err = usagef("--lease-file cannot be written: %w", err)
		}
	}
	if err != nil {
		f.file.Close()
		return nil, err
	}
	return f, nil
}

// checkOver refuses a file whose lease may be alive. It asks the cluster; if that is not possible, the end
// recorded in the file decides. An acquire that did not finish left hold 0: nobody uses what it may have
// been granted, so that is released.
func checkOver(ctx context.Context, svc service, path string, old leaseRecord) error {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	var live bool
	var err error
	if old.hold == 0 {
		if err = svc.ReleaseLease(ctx, old.secret, 0); errors.Is(err, client.ErrNotHeld) {
			err = nil
		}
	} else {
		live, err = holds(ctx, svc, old)
	}
	switch {
	case live, err != nil && time.Now().Before(old.until):
		return usagef("%s holds a lease of %s that lives: release it with qlock release --lease-file %s, or choose another file",
			printable(path), printable(old.lock), printable(path))
	case err != nil:
		return fmt.Errorf("whether the lease in %s lives is not known: %w", printable(path), err)
	}
	return nil
}

// holds reports whether the cluster still knows the lease as a holder of its lock.
func holds(ctx context.Context, svc service, r leaseRecord) (bool, error) {
	if r.lock == "" {
		return true, nil // the lock is not known, so the cluster cannot be asked
	}
	lock, err := svc.GetLock(ctx, &wire.GetLockRequest{Name: r.lock})
	if errors.Is(err, client.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, h := range lock.GetHolders() {
		if h.GetHoldId() == r.hold {
			return true, nil
		}
	}
	return lock.GetHolderCount() > uint64(len(lock.GetHolders())), nil // it may be among those not listed
}

// recordEnd updates the end in a lease file after an extend. If that fails, the recorded end is too early,
// but it is used only if the cluster cannot be asked.
func recordEnd(path string, ttl time.Duration) {
	if path == "" || path == "-" {
		return
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer file.Close()
	f := &leaseFile{file: file, path: path}
	if r, err := f.read(); err == nil && r != nil && !r.until.IsZero() {
		if ttl > 0 {
			r.ttl = ttl
		}
		r.until = time.Now().Add(r.ttl)
		_ = f.write(*r)
	}
}
