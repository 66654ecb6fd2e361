package main

import (
	"strconv"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Texts that a cluster would refuse are refused here before connecting: even without a reachable cluster,
// and before a wait that would be useless.

// maxChosen bounds texts that this program chooses itself, in bytes.
const maxChosen = 128

// checkName refuses text that is not a valid lock name.
func checkName(name string) error {
	if err := wire.ValidName(name); err != nil {
		return badText(err, name)
	}
	return nil
}

// checkText refuses text that is not UTF-8 or contains control characters.
func checkText(what, text string) error {
	if err := wire.ValidText(what, text); err != nil {
		return badText(err, text)
	}
	return nil
}

// badText returns the reason why a text is refused, with the beginning of the text.
func badText(why error, text string) error {
	const shown = 64
	if len(text) > shown {
		return usagef("%w: it begins with %s", why, strconv.Quote(text[:shown]))
	}
	return usagef("%w: %s", why, strconv.Quote(text))
}
