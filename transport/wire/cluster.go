package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// recoveryMark separates the name of a cluster from what identifies its recovery. No name contains it.
const recoveryMark = "+"

// RecoveredID returns the id of the cluster that is recovered from the one with the given id: its name, unique, and a
// fingerprint of the old id. The name stays, so that certificates remain valid; the id is another one, so that the nodes
// of the two clusters do not talk to each other.
func RecoveredID(id, unique string) string {
	return clusterName(id) + recoveryMark + unique + fingerprint(id)
}

// RecoveredFrom reports whether the cluster with that id was recovered from the old one.
func RecoveredFrom(id, old string) bool {
	return id != old && clusterName(id) == clusterName(old) && strings.Contains(id, recoveryMark) && strings.HasSuffix(id, fingerprint(old))
}

// NamesCluster reports whether a certificate with that cluster's name may belong to the cluster with that id.
func NamesCluster(name, id string) bool {
	return id == name || strings.HasPrefix(id, name+recoveryMark)
}

func clusterName(id string) string {
	name, _, _ := strings.Cut(id, recoveryMark)
	return name
}

func fingerprint(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "-" + hex.EncodeToString(sum[:4])
}
