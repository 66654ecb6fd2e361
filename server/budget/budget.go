package budget

import (
	"container/heap"
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// ErrExhausted is returned when there is no memory left, and nobody holds more than whoever
// asks for it.
var ErrExhausted = errors.New("max_buffer_bytes: the node has no memory left for buffers")

// Budget is the memory of a node's buffers. All methods are safe for concurrent use, and a nil
// Budget has no bound.
type Budget struct {
	limit int64

	mu       sync.Mutex // guards what follows
	used     int64      // held by all accounts that are not being cut
	accounts ranking    // those that are not being cut
	cuts     uint64
	refusals uint64
}

// New returns a budget of so many bytes.
func New(limit int64) *Budget {
	return &Budget{limit: limit}
}

// Account is what one connection holds. All methods are safe for concurrent use, and may be
// called on nil.
type Account struct {
	budget *Budget
	cut    func()

	// Guarded by the budget's mu.
	held int64
	// at is the account's place in the ranking, notRanked once it is closed or being cut: what it
	// holds will be free soon then.
	at int
}

const notRanked = -1

// ranking is a heap of accounts with the one that holds most first.
type ranking []*Account

func (r ranking) Len() int           { return len(r) }
func (r ranking) Less(i, k int) bool { return r[i].held > r[k].held }

// Swap exchanges two accounts.
func (r ranking) Swap(i, k int) {
	r[i], r[k] = r[k], r[i]
	r[i].at, r[k].at = i, k
}

// Push adds an account.
func (r *ranking) Push(a any) {
	a.(*Account).at = len(*r)
	*r = append(*r, a.(*Account))
}

// Pop removes the last account.
func (r *ranking) Pop() any {
	last := len(*r) - 1
	a := (*r)[last]
	a.at = notRanked
	(*r)[last], *r = nil, (*r)[:last]
	return a
}

// Open returns the account of a new connection, which holds so many bytes. cut ends the
// connection; it is called at most once, by whoever needs the memory, and must not wait.
// Open returns ErrExhausted if there is no room. Close must follow.
func (b *Budget) Open(bytes int, cut func()) (*Account, error) {
	if b == nil {
		return nil, nil
	}
	a := &Account{budget: b, cut: cut}
	b.mu.Lock()
	heap.Push(&b.accounts, a)
	b.mu.Unlock()
	if err := a.Reserve(bytes); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// Reserve takes so many bytes more. It returns ErrExhausted if there are none, or if the
// connection is being cut.
func (a *Account) Reserve(bytes int) error {
	if a == nil {
		return nil
	}
	victims, err := a.reserve(int64(bytes))
	for _, v := range victims {
		v.cut()
	}
	return err
}

func (a *Account) reserve(bytes int64) (victims []*Account, err error) {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.at == notRanked {
		return nil, ErrExhausted
	}
	for b.used+bytes > b.limit {
		largest := b.accounts[0]
		if largest == a || largest.held <= a.held+bytes {
			b.refusals++
			return victims, ErrExhausted
		}
		heap.Pop(&b.accounts)
		b.used -= largest.held
		b.cuts++
		victims = append(victims, largest)
	}
	a.hold(bytes)
	return victims, nil
}

// hold has the account hold so many bytes more, or less.
func (a *Account) hold(bytes int64) {
	a.held += bytes
	if a.at != notRanked {
		a.budget.used += bytes
		heap.Fix(&a.budget.accounts, a.at)
	}
}

// Held returns how many bytes the connection holds.
func (a *Account) Held() int {
	if a == nil {
		return 0
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return int(a.held)
}

// Release gives so many bytes back.
func (a *Account) Release(bytes int) {
	if a == nil {
		return
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.hold(-min(int64(bytes), a.held))
}

// Close gives everything back. Only the first call does anything.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.hold(-a.held)
	if a.at != notRanked {
		heap.Remove(&a.budget.accounts, a.at)
	}
}

// Used returns how many bytes are held.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

func (b *Budget) counts() (cuts, refusals uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cuts, b.refusals
}

// Register shows the budget among a node's metrics.
func (b *Budget) Register(registry prometheus.Registerer) error {
	var errs []error
	for _, c := range []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quorumlock_buffer_bytes", Help: "Memory that clients make this node hold for a while, in bytes.",
		}, func() float64 { return float64(b.Used()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quorumlock_buffer_limit_bytes", Help: "The bound of quorumlock_buffer_bytes, --max-buffer-bytes.",
		}, func() float64 { return float64(b.limit) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "quorumlock_buffer_cuts_total", Help: "Connections that were cut because they held most when the buffers were used up.",
		}, func() float64 { cuts, _ := b.counts(); return float64(cuts) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "quorumlock_buffer_refusals_total", Help: "Buffers that were refused to whoever held most already.",
		}, func() float64 { _, refusals := b.counts(); return float64(refusals) }),
	} {
		errs = append(errs, registry.Register(c))
	}
	return errors.Join(errs...)
}
