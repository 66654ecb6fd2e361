package store

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Name is what the name of a scheduled backup tells people. It decides nothing: anybody who can write to a store can give
// a file any name.
type Name struct {
	Cluster  string
	Time     time.Time
	Revision uint64
	// Copy distinguishes files that would have the same name; 0 for the first, or from 2 on.
	Copy int
}

const stamp = "20060102T150405Z"

var namePattern = regexp.MustCompile(`^quorumlock-(.+)-(\d{8}T\d{6}Z)-r(0|[1-9]\d{0,19})(?:-([1-9]\d?))?\.snap$`)

// String returns the name of the backup's file.
func (n Name) String() string {
	again := ""
	if n.Copy > 0 {
		again = fmt.Sprintf("-%d", n.Copy)
	}
	return fmt.Sprintf("quorumlock-%s-%s-r%d%s.snap", url.PathEscape(n.Cluster), n.Time.UTC().Format(stamp), n.Revision, again)
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
	again, _ := strconv.Atoi(parts[4]) // 0 without
	n := Name{cluster, at, revision, again}
	return n, err == nil && again != 1 && n.String() == file
}

// temporary ends the names of files that are being written.
const temporary = ".tmp"

var randomPart = regexp.MustCompile(`\.\d+$`)

// isTemporary reports whether file is what an interrupted Put has left.
func isTemporary(file string) bool {
	of, cut := strings.CutSuffix(file, temporary)
	if !cut {
		return false
	}
	return isName(randomPart.ReplaceAllString(of, ""))
}

// isName reports whether a scheduled backup can have this name. Retention does not look at other files.
func isName(file string) bool {
	_, ok := ParseName(file)
	return ok
}
