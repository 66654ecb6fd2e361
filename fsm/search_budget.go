package fsm

// Deadlock searches are counted in units: one for each node of the graph that is processed, one for each
// way out of it, and for permits one for each lock of a wait that is tried. Ten thousand units take a few
// milliseconds. A request whose search reaches its limit waits: see ListDeadlocks.
const (
	// maxSearch bounds one search, and the allowance that a session can save up.
	maxSearch = 8_192
	// searchPerRequest is added to a session's allowance for each request. A search may always use that
	// much, and on average no request can cost the cluster more, however many sessions share the work.
	searchPerRequest = 256
	// firstSearchAllowance is the allowance of a new session.
	firstSearchAllowance = maxSearch / 2
	// maxEntrySearch bounds the saved-up units that the requests of one log entry may use together.
	maxEntrySearch = 2 * maxSearch
)

// searchRates are the allowance of a new session, and what is added to it for each request that is executed.
type searchRates struct{ first, perRequest uint16 }

// addAllowance adds to a session's allowance for a request that is executed.
func (m *Machine) addAllowance(s *session) {
	s.searchAllowance = min(s.searchAllowance+m.searches.perRequest, maxSearch)
}

// searchLimit returns how many units a search for a session's request may use.
func (m *Machine) searchLimit(s *session) int {
	return min(int(s.searchAllowance), max(maxEntrySearch-m.searched, searchPerRequest))
}

// chargeSearch deducts the units of a search from the session's allowance. The last step may exceed the
// limit by as many ways as a claim for the most locks has.
func (m *Machine) chargeSearch(s *session, units int) {
	m.searched += units
	s.searchAllowance -= uint16(min(units, int(s.searchAllowance)))
}
