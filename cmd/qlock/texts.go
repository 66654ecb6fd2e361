package main

import (
	"strconv"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// What a cluster would refuse is refused here, before anybody connects: also where there is
// no cluster to ask, and before a wait that would have been in vain.

// maxChosen bounds a text that this program chooses itself, in bytes.
const maxChosen = 128

// checkName refuses what is no lock's name.
func checkName(name string) error {
	if err := wire.ValidName(name); err != nil {
		return badText(err, name)
	}
	return nil
}

// checkText refuses text that is not UTF-8 or has control characters.
func checkText(what, text string) error {
	if err := wire.ValidText(what, text); err != nil {
		return badText(err, text)
	}
	return nil
}

// badText says why a text is refused, and shows its beginning.
func badText(why error, text string) error {
	const shown = 64
	if len(text) > shown {
		return usagef("%w: it begins with %s", why, strconv.Quote(text[:shown]))
	}
	return usagef("%w: %s", why, strconv.Quote(text))
}
