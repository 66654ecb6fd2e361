package script_test

import (
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/server/redis/script"
)

// TestCache verifies that what an owner loads and forgets does not concern others, and that a flood of scripts displaces
// the oldest of its own.
func TestCache(t *testing.T) {
	c := script.NewCache()
	known, err := script.Recognise([]byte(release))
	if err != nil {
		t.Fatal(err)
	}
	const sha1 = "the first"
	c.Add("ann", sha1, known)
	if c.Find("ann", sha1) == nil || c.Find("bob", sha1) != nil {
		t.Error("a script is not that of its owner alone")
	}
	for i := range 2000 {
		c.Add("bob", fmt.Sprint(i), known)
	}
	if c.Find("bob", "0") != nil || c.Find("bob", "1999") == nil || c.Find("ann", sha1) == nil {
		t.Error("a flood has not displaced the oldest script of its owner")
	}
	c.Flush("bob")
	if c.Find("bob", "1999") != nil || c.Find("ann", sha1) == nil {
		t.Error("a flush has not forgotten the scripts of its owner")
	}
	for i := range 2000 {
		c.Add(fmt.Sprint(i), sha1, known)
	}
	if c.Find("ann", sha1) != nil || c.Find("1999", sha1) == nil {
		t.Error("the scripts of many owners have not displaced the oldest")
	}
}
