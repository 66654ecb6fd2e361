package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/client"
)

// refused returns the error for a claim that was not acquired.
func refused(k claim, err error) error {
	if errors.Is(err, client.ErrNotAcquired) {
		return failf(exitNotAcquired, "%s not acquired: somebody holds it or waits for it, see qlock why; --wait waits", k.what())
	}
	if tooLongValue(err) {
		return failf(exitUsage, "%s not acquired: --value is too long: %w", k.what(), err)
	}
	return fmt.Errorf("%s not acquired: %w", k.what(), err)
}

// tooLongValue reports whether the cluster refused the value because of its length. The limit is a setting
// of the cluster. Unlike with other limits, trying again later does not help.
func tooLongValue(err error) bool {
	var refusal *client.StatusError
	return errors.As(err, &refusal) && refusal.Status == client.StatusResourceExhausted && strings.HasPrefix(refusal.Message, "max_value_bytes:")
}
