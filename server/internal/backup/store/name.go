package store

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Name identifies a backup of a cluster.
type Name struct {
	Cluster  string
	Time     time.Time
	Revision uint64
}

const stamp = "20060102T150405Z"

var namePattern = regexp.MustCompile(`^quorumlock-(.+)-(\d{8}T\d{6}Z)-r(0|[1-9]\d{0,19})\.snap$`)

// String returns the name of the backup's file.
func (n Name) String() string {
	return fmt.Sprintf("quorumlock-%s-%s-r%d.snap", url.PathEscape(n.Cluster), n.Time.UTC().Format(stamp), n.Revision)
}

// ParseName returns the Name of a file, and false for other files.
func ParseName(file string) (Name, bool) {
	parts := namePattern.FindStringSubmatch(file)
	if parts == nil {
		return Name{}, false
	}
	cluster, err := url.PathUnescape(parts[1])
	if err != nil {
		return Name{}, false
	}
	at, err := time.Parse(stamp, parts[2])
	if err != nil {
		return Name{}, false
	}
	revision, err := strconv.ParseUint(parts[3], 10, 64)
	n := Name{cluster, at, revision}
	return n, err == nil && n.String() == file
}

// temporary ends the names of files that are being written.
const temporary = ".tmp"

// isTemporary reports whether file is what an interrupted Put has left.
func isTemporary(file string) bool {
	of, cut := strings.CutSuffix(file, temporary)
	if !cut {
		return false
	}
	_, ok := ParseName(of)
	return ok
}

// Superfluous returns those backups of the cluster that exceed the newest keep, without the file named last. 0 keeps
// all.
func Superfluous(files []string, cluster string, keep int, last string) []string {
	var names []Name
	for _, file := range files {
		if n, ok := ParseName(file); ok && n.Cluster == cluster {
			names = append(names, n)
		}
	}
	if keep <= 0 || len(names) <= keep {
		return nil
	}
	slices.SortFunc(names, func(a, b Name) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(b.Revision, a.Revision)) })
	var drop []string
	for _, n := range names[keep:] {
		if file := n.String(); file != last {
			drop = append(drop, file)
		}
	}
	return drop
}
