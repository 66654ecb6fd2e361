package hostile

import "testing"

// TestHostileTraffic attacks one cluster in plaintext and one with TLS and a policy while both are in use, and then
// checks that they have returned to their earlier state.
func TestHostileTraffic(t *testing.T) {
	t.Parallel()
	protections := []protection{withPolicy}
	if full {
		protections = append(protections, plaintext, withTLS)
	}
	for _, protected := range protections {
		t.Run(protected.String(), func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, 3, protected)
			l := startLoad(t, c)
			before := c.sizes()
			t.Run("attacks", func(t *testing.T) { testAttacks(t, c) }) // returns with the last of them
			l.finish()
			c.waitForSize(before)
			c.honest()
		})
	}
}

// testAttacks runs the floods last: under many errors logs are sampled, and each single attack must get its
// line.
func testAttacks(t *testing.T, c *cluster) {
	t.Run("garbage", func(t *testing.T) { testGarbage(t, c) })
	t.Run("floods", func(t *testing.T) { testFloods(t, c) })
}
