package script

import "slices"

// replies returns the reply for each outcome. Runs that have the same outcome must have the same reply.
func (m meaning) replies(runs []*run) (map[Outcome]Reply, error) {
	byOutcome := map[Outcome][]*run{}
	for _, r := range runs {
		outcome := m.outcome(r)
		byOutcome[outcome] = append(byOutcome[outcome], r)
	}
	replies := map[Outcome]Reply{}
	for outcome, same := range byOutcome {
		reply, err := m.reply(outcome, same)
		if err != nil {
			return nil, err
		}
		replies[outcome] = reply
	}
	return replies, nil
}

// reply returns the reply of runs with the same outcome.
func (m meaning) reply(outcome Outcome, runs []*run) (Reply, error) {
candidates:
	for _, candidate := range m.candidates(outcome, runs[0]) {
		for _, r := range runs {
			if !candidate.answers(m, r) {
				continue candidates
			}
		}
		return candidate, nil
	}
	return Reply{}, unknown("it answers what cannot be answered without executing it")
}

// candidates returns the replies that could be meant by what a run returned.
func (m meaning) candidates(outcome Outcome, r *run) []Reply {
	switch v := r.result; v.kind {
	case kindNil:
		return []Reply{{Kind: Nil}}
	case kindBool:
		if v.truth {
			return []Reply{{Kind: Integer, Integer: 1}}
		}
		return []Reply{{Kind: Nil}}
	case kindNumber:
		return []Reply{{Kind: Integer, Integer: v.number}, {Kind: Keys}, {Kind: Count}}
	case kindStatus:
		return []Reply{{Kind: Status, Text: v.operand.text}}
	case kindError:
		return []Reply{{Kind: Error, Text: v.operand.text}}
	case kindList:
		if m.action == Read {
			return []Reply{{Kind: ValuePTTL}}
		}
	case kindText, kindStored:
		if v.kind == kindText && v.operand.arg == 0 {
			return []Reply{{Kind: Bulk, Text: v.operand.text}}
		}
		if outcome == Done || outcome == Extended {
			return []Reply{{Kind: Value}}
		}
	case kindPTTL:
		if outcome == Done && (m.action == Remaining || m.action == Read) {
			return []Reply{{Kind: PTTL}}
		}
	}
	return nil
}

// answers reports whether the reply is what the run returned.
func (p Reply) answers(m meaning, r *run) bool {
	v := r.result
	switch p.Kind {
	case Nil:
		return !v.truthy()
	case Integer:
		return v.kind == kindNumber && v.number == p.Integer || v.kind == kindBool && v.truth && p.Integer == 1
	case Status:
		return v.kind == kindStatus && v.operand.text == p.Text
	case Error:
		return v.kind == kindError && v.operand.text == p.Text
	case ValuePTTL:
		return v.kind == kindList && r.isValuePTTL(v.list.values)
	case Bulk:
		return v == text(p.Text)
	case Keys:
		return v.kind == kindNumber && v.number == int64(len(r.keys))
	case Count:
		return v.kind == kindNumber && v.number == r.changed()
	case Value:
		return r.returnsValue(m.action)
	case PTTL:
		return v.kind == kindPTTL && r.shortestKey(v.key)
	}
	return false
}

// changed returns how many keys changed.
func (r *run) changed() (n int64) {
	for i := range r.keys {
		if r.keys[i].change() != kept {
			n++
		}
	}
	return n
}

// returnsValue reports whether the run returns the caller's value, or for Read the key's.
func (r *run) returnsValue(action Action) bool {
	switch v := r.result; {
	case v.kind == kindStored:
		return action == Read || r.keys[v.key].initial == own
	case v.kind == kindText && r.form.value != nil:
		return v.operand == *r.form.value && v.operand.arg != 0
	}
	return false
}

// isValuePTTL reports whether the values are what GET and PTTL return for the key.
func (r *run) isValuePTTL(values []value) bool {
	if r.keys[0].initial == absent {
		return slices.Equal(values, []value{boolean(false), number(-2)})
	}
	return slices.Equal(values, []value{{kind: kindStored}, {kind: kindPTTL}})
}

// shortestKey reports whether no key has less time left.
func (r *run) shortestKey(i int) bool {
	for j := range r.keys {
		if r.keys[j].rank < r.keys[i].rank {
			return false
		}
	}
	return true
}
