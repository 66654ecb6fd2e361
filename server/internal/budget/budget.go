package budget

import (
	"container/heap"
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// ErrExhausted is returned when no memory is left and no other account holds more than the requesting one
// would, or when the requesting connection is being cut.
var ErrExhausted = errors.New("max_buffer_bytes: the node has no memory left for buffers")

// Budget is the memory for a node's buffers. All methods are safe for concurrent use. A nil Budget is
// unbounded.
type Budget struct {
	limit int64

	mu       sync.Mutex // guards the fields below
	used     int64      // held by all accounts, except those being cut
	accounts ranking    // all accounts, except those being cut
	cuts     uint64
	refusals uint64
}

// New returns a budget of limit bytes.
func New(limit int64) *Budget {
	return &Budget{limit: limit}
}

// Account is the share of one connection. All methods are safe for concurrent use and may be called on nil.
type Account struct {
	budget *Budget
	cut    func()

	// Guarded by the budget's mu.
	held int64
	// at is the account's position in the ranking. It is notRanked once the account is closed or being cut,
	// since its memory is about to be freed.
	at int
}

const notRanked = -1

// ranking is a heap of accounts, ordered by held, largest first.
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

// Open returns an account for a new connection, with bytes already reserved. cut must end the connection. It
// is called at most once, by a goroutine that needs the memory, and must not block. Open returns ErrExhausted
// if there is no room. The caller must call Close.
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

// Reserve adds bytes to the account. It returns ErrExhausted if there is no room or the connection is being
// cut.
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

// hold adds bytes, which may be negative, to what the account holds.
func (a *Account) hold(bytes int64) {
	a.held += bytes
	if a.at != notRanked {
		a.budget.used += bytes
		heap.Fix(&a.budget.accounts, a.at)
	}
}

// Held returns the bytes held by the account.
func (a *Account) Held() int {
	if a == nil {
		return 0
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return int(a.held)
}

// Release subtracts bytes from the account.
func (a *Account) Release(bytes int) {
	if a == nil {
		return
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.hold(-min(int64(bytes), a.held))
}

// Close releases everything. Only the first call has an effect.
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

// Used returns the bytes held by all accounts, except those being cut.
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

// Register registers the budget's metrics.
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
