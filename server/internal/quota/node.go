package quota

import (
	"cmp"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Source is the node's applied state: the replica, or a fake in tests.
type Source interface {
	// Access returns who may do what. It is immutable, and another one after each change.
	Access() *fsm.Access
}

// Node counts what identities use of this node. All methods are safe for concurrent use. A nil Node bounds nothing.
type Node struct {
	// ID is the --id of the node, which marks what it counts. It is set before anything else is called.
	ID string

	source  Source
	now     func() time.Time
	watches *Pool

	mu       sync.Mutex // guards accounts, and the fields of each
	accounts map[string]*Account
}

// New returns a Node without accounts, which has so many watches at most.
func New(source Source, watches int) *Node {
	n := &Node{source: source, now: time.Now, accounts: map[string]*Account{}}
	n.watches = n.Pool("max_watches", watches)
	return n
}

// Account is what one identity uses of this node. All methods are safe for concurrent use and may be called on nil.
type Account struct {
	node     *Node
	identity string

	// Guarded by the node's mu.
	opened               int
	connections, watches uint64
	// places counts what the account has of each pool.
	places  map[*Pool]int
	limiter *rate.Limiter
	// quota is that under the policy of known.
	quota *wire.Quota
	known *fsm.Access

	// unlimited is the policy under which the rate of the identity is not limited, so that most requests take no lock.
	unlimited atomic.Pointer[fsm.Access]
}

// Open returns the account of an identity. The caller must call Close.
func (n *Node) Open(identity string) *Account {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	a := n.accounts[identity]
	if a == nil {
		a = &Account{node: n, identity: identity, places: map[*Pool]int{}}
		n.accounts[identity] = a
	}
	a.opened++
	return a
}

// Close is called when the account is not used any more. An account with a rate that is used up stays until it has
// recovered, so that closing a connection does not renew the burst.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.node.mu.Lock()
	defer a.node.mu.Unlock()
	a.opened--
	a.node.drop(a)
}

// drop removes an account that nothing needs. Called with mu held.
func (n *Node) drop(a *Account) {
	if a.opened == 0 && a.connections == 0 && (a.limiter == nil || a.limiter.TokensAt(n.now()) >= float64(a.limiter.Burst())) {
		delete(n.accounts, a.identity)
	}
}

// Sweep drops the closed accounts whose rate has recovered.
func (n *Node) Sweep() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.accounts {
		n.drop(a)
	}
}

// present returns the quota under the present policy, or nil. Called with mu held.
func (a *Account) present() *wire.Quota {
	if now := a.node.source.Access(); a.known != now {
		a.quota, a.known = now.Rights().Quota(a.identity), now
		a.adjust()
	}
	return a.quota
}

// adjust makes the limiter follow the quota. It keeps what a limiter with the same limit has left.
func (a *Account) adjust() {
	limit := a.quota.GetRequestsPerSecond()
	burst := int(min(limit, math.MaxInt32))
	switch {
	case limit == 0:
		a.limiter = nil
		a.unlimited.Store(a.known)
	case a.limiter == nil || a.limiter.Burst() != burst:
		a.limiter = rate.NewLimiter(rate.Limit(limit), burst)
	}
}

// Connect counts a connection of a port, whose places are in the pool, until leave is called. port is nil if another
// identity that uses the connection as well has taken its place. Connect returns a refusal if the identity has its
// connections.
func (a *Account) Connect(port *Pool) (leave func(), refusal *wire.Result) {
	if a == nil {
		return func() {}, nil
	}
	a.node.mu.Lock()
	defer a.node.mu.Unlock()
	limit := a.present().GetConnections()
	switch {
	case limit > 0 && a.connections >= limit:
		refusal = fsm.QuotaExceeded(wire.QuotaUse_CONNECTIONS, a.identity, a.connections, limit, 1)
	case limit == 0:
		refusal = a.overShare(port)
	}
	if refusal != nil {
		return nil, refusal
	}
	a.connections++
	a.take(port, 1)
	return func() {
		a.node.mu.Lock()
		defer a.node.mu.Unlock()
		a.connections--
		a.take(port, -1)
		a.node.drop(a)
	}, nil
}

// Watch counts a watch until end is called. It returns a refusal if the identity has its watches.
func (a *Account) Watch() (end func(), refusal *wire.Result) {
	if a == nil {
		return func() {}, nil
	}
	a.node.mu.Lock()
	defer a.node.mu.Unlock()
	limit := a.present().GetWatches()
	switch {
	case limit > 0 && a.watches >= limit:
		refusal = fsm.QuotaExceeded(wire.QuotaUse_WATCHES, a.identity, a.watches, limit, 1)
	case limit == 0:
		refusal = a.overShare(a.node.watches)
	}
	if refusal != nil {
		return nil, refusal
	}
	a.watches++
	a.take(a.node.watches, 1)
	return func() {
		a.node.mu.Lock()
		defer a.node.mu.Unlock()
		a.watches--
		a.take(a.node.watches, -1)
	}, nil
}

// Request counts a request, the message of the schema, towards the requests per second. denied is the refusal of the
// policy, nil if it allows the request. Request returns how the request is refused, if it is: if there are too many,
// whether they are denied or not, and otherwise with denied. Heartbeats, requests that give something up and those of
// operators do not count.
func (a *Account) Request(request proto.Message, denied *wire.Result) *wire.Result {
	if !a.limited() || exempt(request, denied != nil) {
		return denied
	}
	return cmp.Or(a.takeToken(), denied)
}

// RequestOf is Request for a framed request.
func (a *Account) RequestOf(req *wire.Request, denied *wire.Result) *wire.Result {
	if !a.limited() {
		return denied
	}
	body := access.BodyOf(req)
	if body == nil {
		return denied
	}
	return a.Request(body, denied)
}

// limited reports whether requests may be refused.
func (a *Account) limited() bool {
	if a == nil {
		return false
	}
	now := a.node.source.Access()
	return now.Rights().HasQuotas() && a.unlimited.Load() != now
}

func (a *Account) takeToken() *wire.Result {
	a.node.mu.Lock()
	defer a.node.mu.Unlock()
	limit := a.present().GetRequestsPerSecond()
	if limit == 0 || a.limiter.AllowN(a.node.now(), 1) {
		return nil
	}
	return fsm.QuotaExceeded(wire.QuotaUse_REQUESTS_PER_SECOND, a.identity, limit, limit, 1)
}

type accountKey struct{}

// NewContext returns a context that carries the account of a request.
func NewContext(ctx context.Context, a *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, a)
}

// Of returns the account of a request; nil if none was opened, because another node has counted it.
func Of(ctx context.Context) *Account {
	a, _ := ctx.Value(accountKey{}).(*Account)
	return a
}

// exempt reports whether a request is never refused for its rate. Whoever is denied an operator's request is no operator.
func exempt(request proto.Message, denied bool) bool {
	switch request := request.(type) { // the frequent ones first, without reflection
	case *wire.Acquire, *wire.AttachRequest: // to attach is no giving up, although it is about one's own
		return false
	case *wire.ChangeKeys:
		return exemptKeys(request, denied)
	case *wire.Release, *wire.Heartbeat, *wire.EndRequest:
		return true
	}
	switch access.RightOf(request) {
	case wire.Right_OWN:
		return true
	case wire.Right_OPERATE_LOCKS, wire.Right_READ_AUDIT, wire.Right_SAVE_BACKUP,
		wire.Right_CHANGE_MEMBERS, wire.Right_RESTORE_BACKUP, wire.Right_CHANGE_POLICY:
		return !denied
	}
	return false
}

// exemptKeys is exempt for keys, which these actions give up. Those that others hold are for operators to delete.
func exemptKeys(op *wire.ChangeKeys, denied bool) bool {
	switch op.GetAction() {
	case wire.ChangeKeys_RELEASE, wire.ChangeKeys_RELEASE_ALL, wire.ChangeKeys_DELETE:
		return !denied
	}
	return false
}

// Use is what an identity uses of this node. Requests are those of the last second that have not recovered yet.
type Use struct{ Connections, Watches, Requests uint64 }

// Use returns what an identity uses of this node.
func (n *Node) Use(identity string) Use {
	if n == nil {
		return Use{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	a := n.accounts[identity]
	if a == nil {
		return Use{}
	}
	return a.use()
}

// Name returns the ID; that of a nil Node is empty.
func (n *Node) Name() string {
	if n == nil {
		return ""
	}
	return n.ID
}

// Users returns the identities after a name that use something of this node, in no order.
func (n *Node) Users(after string) (identities []string) {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for identity, a := range n.accounts {
		if identity > after && a.use() != (Use{}) {
			identities = append(identities, identity)
		}
	}
	return identities
}

// use returns what the account counts. Called with mu held.
func (a *Account) use() Use {
	use := Use{Connections: a.connections, Watches: a.watches}
	if a.present(); a.limiter != nil {
		use.Requests = uint64(max(0, math.Ceil(float64(a.limiter.Burst())-a.limiter.TokensAt(a.node.now()))))
	}
	return use
}

// each calls fn for each identity with an account that has a quota. fn may take long: it logs.
func (n *Node) each(fn func(identity string, use Use, quota *wire.Quota)) {
	for _, one := range n.bounded() {
		fn(one.identity, one.use, one.quota)
	}
}

// boundedUse is what an identity with a quota uses.
type boundedUse struct {
	identity string
	use      Use
	quota    *wire.Quota
}

func (n *Node) bounded() (all []boundedUse) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for identity, a := range n.accounts {
		if quota := a.present(); quota != nil {
			all = append(all, boundedUse{identity, a.use(), quota})
		}
	}
	return all
}
