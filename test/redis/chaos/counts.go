package chaos

import (
	"errors"
	"fmt"
	"reflect"
)

// Counts says how much the clients did.
type Counts struct {
	// Mutexes are grants to redsync, Waits those to QL.LOCK, Holds those to the SDK.
	Mutexes, Waits, Holds int
	// Refused are tries for a lock that was taken, Unanswered requests of Redis clients that failed.
	Refused, Unanswered int
	// Extended, Released and Abandoned are keys of Redis clients.
	Extended, Released, Abandoned int
	// Writes are accepted writes to the counters, Stale those that they rejected.
	Writes, Stale int
	// Kept are keys that were held through a fault.
	Kept int
}

// Add adds other counts.
func (c *Counts) Add(o Counts) {
	sum, other := reflect.ValueOf(c).Elem(), reflect.ValueOf(o)
	for i := range sum.NumField() {
		sum.Field(i).SetInt(sum.Field(i).Int() + other.Field(i).Int())
	}
}

// Enough returns an error that names every count smaller than that in least.
func (c Counts) Enough(least Counts) error {
	did, want := reflect.ValueOf(c), reflect.ValueOf(least)
	var errs []error
	for i := range did.NumField() {
		if did.Field(i).Int() < want.Field(i).Int() {
			name := did.Type().Field(i).Name
			errs = append(errs, fmt.Errorf("%s: %d, at least %d are needed", name, did.Field(i).Int(), want.Field(i).Int()))
		}
	}
	return errors.Join(errs...)
}
