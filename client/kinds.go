package client

// kind is the kind of a call where it affects how the call is sent and answered.
type kind uint8

const (
	kindRead kind = iota
	kindAdmin
	kindOperate
	kindRepeat // changes something, and may be executed twice
	kindOpen
	kindAttach
	kindHeartbeat
	kindAcknowledge
	kindClose
	kindAcquire
	kindRelease
	kindCancel
	kindSetValue
	kindUpgrade
	kindDowngrade
	kindExtend
	kindLease // acquires a lease
	kindExtendLease
	kindReleaseLease
	kindWatch // answered, and then followed by pushes
	kindEnd
	kindPing
)

// policy is how calls of one kind are sent, repeated and answered.
type policy struct {
	// urgent calls are sent first and may use the reserved part of the window: they keep sessions alive, or
	// give something back.
	urgent bool
	// ofConnection calls concern only their connection and are not resent on the next one.
	ofConnection bool
	// dropped calls are not repeated after an answer that they were not executed.
	dropped bool
	// once calls are never repeated once they may have been executed.
	once bool
	// slow calls may be answered late, which says nothing about the node.
	slow bool
	// brief answers are frequent. What they contain is copied at once, and they are not kept.
	brief bool
	// claims answers must have the digest of the request.
	claims bool
	// left calls end when their caller leaves. Others go on until their outcome is known, if they were sent.
	left bool
	// gives calls give something back: they go on after their caller has left, whether they were sent or not.
	gives bool
}

var policies = [...]policy{
	kindRead:         {left: true},
	kindAdmin:        {left: true, once: true, slow: true},
	kindOperate:      {left: true, once: true},
	kindRepeat:       {left: true},
	kindOpen:         {},
	kindAttach:       {urgent: true, ofConnection: true},
	kindHeartbeat:    {urgent: true, ofConnection: true, brief: true},
	kindAcknowledge:  {urgent: true, ofConnection: true},
	kindClose:        {urgent: true},
	kindAcquire:      {brief: true, claims: true},
	kindRelease:      {urgent: true, brief: true},
	kindCancel:       {urgent: true},
	kindSetValue:     {urgent: true},
	kindUpgrade:      {brief: true, claims: true},
	kindDowngrade:    {urgent: true, gives: true},
	kindExtend:       {urgent: true},
	kindLease:        {left: true, slow: true, claims: true},
	kindExtendLease:  {left: true, urgent: true},
	kindReleaseLease: {urgent: true},
	kindWatch:        {},
	kindEnd:          {urgent: true, ofConnection: true, dropped: true},
	kindPing:         {urgent: true, ofConnection: true, dropped: true},
}

func (k kind) policy() *policy { return &policies[k] }
