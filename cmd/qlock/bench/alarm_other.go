//go:build !linux

package bench

// newAlarm returns the most accurate alarm available.
func newAlarm() alarm { return timer{} }
