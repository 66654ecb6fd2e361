package generate

import (
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Facts are the values of one exchange by the names of their fields.
type Facts map[protoreflect.Name]protoreflect.Value

// Memory contains the facts of earlier exchanges.
type Memory struct {
	all []Facts
	// secret reports whether a value must not be repeated.
	secret func(protoreflect.Value) bool
}

// mostFacts bounds a memory. It drops the oldest facts, except for the first keptFacts.
const mostFacts, keptFacts = 96, 16

// NewMemory returns an empty Memory. It never repeats a value that is secret.
func NewMemory(secret func(protoreflect.Value) bool) *Memory { return &Memory{secret: secret} }

// aliases maps fields to fields of other names that carry the same value.
var aliases = map[protoreflect.Name][]protoreflect.Name{
	"next_page_token": {"page_token"},
	"revision":        {"after_revision"},
	"seq":             {"acquire_seq"},
	"id":              {"request_id"},
	"wait_id":         {"hold_id"},
	"lock":            {"name"},
}

// Learn stores the facts of a request and its answers: those of the exchange as a whole, and separately those
// of each message within a list.
func (m *Memory) Learn(said ...protoreflect.Message) {
	facts := Facts{}
	for _, message := range said {
		m.collect(facts, message, 0)
	}
	m.add(facts)
}

func (m *Memory) add(facts Facts) {
	if len(facts) == 0 {
		return
	}
	if len(m.all) >= mostFacts {
		m.all = append(m.all[:keptFacts], m.all[keptFacts+1:]...)
	}
	m.all = append(m.all, facts)
}

func (m *Memory) collect(facts Facts, message protoreflect.Message, depth int) {
	for i := range message.Descriptor().Fields().Len() { // always in this order
		field := message.Descriptor().Fields().Get(i)
		value := message.Get(field)
		switch {
		case !message.Has(field) || field.IsMap():
		case field.IsList():
			m.list(facts, field, value.List(), depth)
		case field.Message() != nil:
			m.collect(facts, value.Message(), depth+1)
		default:
			m.note(facts, field.Name(), value)
		}
	}
}

func (m *Memory) list(facts Facts, field protoreflect.FieldDescriptor, list protoreflect.List, depth int) {
	for i := range min(list.Len(), 4) {
		if field.Message() == nil {
			m.note(facts, field.Name(), list.Get(i))
			continue
		}
		own := Facts{}
		m.collect(own, list.Get(i).Message(), depth+1)
		m.add(own)
		if i == 0 {
			m.collect(facts, list.Get(i).Message(), depth+1)
		}
	}
}

func (m *Memory) note(facts Facts, name protoreflect.Name, value protoreflect.Value) {
	if m.secret != nil && m.secret(value) {
		return
	}
	for _, name := range append([]protoreflect.Name{name}, aliases[name]...) {
		if _, known := facts[name]; !known {
			facts[name] = value
		}
	}
}

// draws is how many exchanges are considered for each message.
const draws = 6

// pick draws the facts of a few exchanges, recent ones more often, and returns those that contain most of the
// wanted fields; nil if there are none.
func (m *Memory) pick(s *Source, wanted map[protoreflect.Name]bool) (best Facts) {
	most := -1
	for range draws {
		facts := m.draw(s)
		said := 0
		for name := range wanted {
			if _, known := facts[name]; known {
				said++
			}
		}
		if said > most {
			best, most = facts, said
		}
	}
	return best
}

func (m *Memory) draw(s *Source) Facts {
	n := len(m.all)
	switch {
	case n == 0:
		return nil
	case s.Below(2) == 0:
		return m.all[n-1-s.Below(min(n, 8))]
	}
	return m.all[s.Below(n)]
}

// wanted collects the fields that identify something, of a message and the messages in it.
func wanted(message protoreflect.MessageDescriptor, depth int, names map[protoreflect.Name]bool) {
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		switch {
		case field.ContainingOneof() != nil && depth == 0, depth > 3:
		case field.Message() != nil:
			wanted(field.Message(), depth+1, names)
		case identifies(field):
			names[field.Name()] = true
		}
	}
}
