package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// writeLevel writes the cluster's feature level and, if some nodes support a higher one, those that keep it down: until
// they are upgraded, or restarted without --feature-level, the others can go back to their former version.
func writeLevel(w io.Writer, s *wire.StatusResponse) {
	level, highest := s.GetLevel(), s.GetLevel()
	var behind []string
	for _, n := range s.GetNodes() {
		highest = max(highest, n.GetLevel())
		if n.GetLevel() <= level {
			behind = append(behind, printable(n.GetId()))
		}
	}
	switch {
	case level == 0: // not yet bootstrapped
	case highest == level:
		fmt.Fprintf(w, "feature level %d\n", level)
	case len(behind) > 0:
		fmt.Fprintf(w, "feature level %d, and not %d yet because of %s\n", level, highest, strings.Join(behind, ", "))
	default:
		fmt.Fprintf(w, "feature level %d, about to be raised\n", level)
	}
}
