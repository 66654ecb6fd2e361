//go:build unix

package main

import (
	"math"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// orders is the memory that a run shares with its guard. To write to it never blocks, whatever state the
// guard is in, and the guard always sees the latest, even if the run was stopped in between. Times are on
// bootTime's clock.
type orders struct {
	group     atomic.Int64 // the command's process group; 0 until it is started
	signal    atomic.Int64 // what asks the command to end; 0 if nothing does
	askAt     atomic.Int64 // when the guard asks the command to end, unless it was asked
	killAt    atomic.Int64 // when the guard kills the command
	asked     atomic.Bool  // the command was asked to end, by the run or by the guard
	acted     atomic.Bool  // the guard has ended the command because the time had come
	suspended atomic.Bool  // the run stops itself and the command
	dismissed atomic.Bool  // the command has ended
}

// set sets when the guard asks the command to end and when it kills the command. It reports whether one of
// them is earlier than before.
func (o *orders) set(ask, kill time.Duration) (earlier bool) {
	a, b := o.askAt.Swap(int64(ask)), o.killAt.Swap(int64(kill))
	return int64(ask) < a || int64(kill) < b
}

// sharedOrders maps the orders in a file.
func sharedOrders(file *os.File) (*orders, error) {
	memory, err := unix.Mmap(int(file.Fd()), 0, int(unsafe.Sizeof(orders{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return (*orders)(unsafe.Pointer(unsafe.SliceData(memory))), nil // mapped until the process ends
}

// newOrders returns orders that name no group and no time, and the file that contains them.
func newOrders(signal syscall.Signal) (*orders, *os.File, error) {
	file, err := memoryFile()
	if err != nil {
		return nil, nil, err
	}
	if err = file.Truncate(int64(unsafe.Sizeof(orders{}))); err == nil {
		var o *orders
		if o, err = sharedOrders(file); err == nil {
			o.signal.Store(int64(signal))
			o.set(never, never)
			return o, file, nil
		}
	}
	file.Close()
	return nil, nil, err
}
