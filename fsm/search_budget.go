package fsm

// Deadlock searches are counted in units: one for each node of the graph that is looked at,
// for each way out of it, and for each lock of a wait that is tried for permits. Ten thousand
// take a few milliseconds. A request whose search comes to its limit waits: see ListDeadlocks.
const (
	// maxSearch bounds one search, and what a session can save up for one.
	maxSearch = 8_192
	// searchPerRequest is what each request adds to its session's allowance. So a search may
	// always take as much, and on average no request can cost the cluster more, however many
	// sessions share the work.
	searchPerRequest = 256
	// firstSearchAllowance is that of a new session.
	firstSearchAllowance = maxSearch / 2
	// maxEntrySearch bounds what the requests of one log entry take from what was saved up.
	maxEntrySearch = 2 * maxSearch
)

// searchRates are what sessions are given for deadlock searches: a new one, and each for a
// request that is run.
type searchRates struct{ first, perRequest uint16 }

// earnSearch adds to a session's allowance for a request that is run.
func (m *Machine) earnSearch(s *session) {
	s.searchAllowance = min(s.searchAllowance+m.searches.perRequest, maxSearch)
}

// searchLimit returns how many units a search for a session's request may take.
func (m *Machine) searchLimit(s *session) int {
	return min(int(s.searchAllowance), max(maxEntrySearch-m.searched, searchPerRequest))
}

// chargeSearch has a session pay for a search. The last step may exceed its limit by as many
// ways as a claim of the most locks has.
func (m *Machine) chargeSearch(s *session, units int) {
	m.searched += units
	s.searchAllowance -= uint16(min(units, int(s.searchAllowance)))
}
