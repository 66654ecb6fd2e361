package rollback

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// start returns the next start, with the nonce 100 + its number.
func start(last *wire.BootRecord, stored *wire.StoredState) *Boot {
	return NewBoot(last, 100+last.GetBoot()+1, stored)
}

// thirdStart returns the third start of a node whose disk holds term 5, a vote in term 4 and entry 77.
func thirdStart() *Boot {
	first := start(nil, &wire.StoredState{})
	second := start(first.Record(), &wire.StoredState{})
	return start(second.Record(), &wire.StoredState{Term: 5, VoteTerm: 4, LastIndex: 77})
}

func TestCheck(t *testing.T) {
	b := thirdStart()
	if b.Stored.Boot != 3 || b.Stored.Nonce != 103 {
		t.Fatalf("stored %v", b.Stored)
	}
	full := wire.DiskEvidence{Term: 5, VoteTerm: 4, CommittedIndex: 77}
	of := func(boot, nonce uint64, change ...func(*wire.DiskEvidence)) *wire.DiskEvidence {
		e := &wire.DiskEvidence{Boot: boot, Nonce: nonce, Term: full.Term, VoteTerm: full.VoteTerm, CommittedIndex: full.CommittedIndex}
		for _, f := range change {
			f(e)
		}
		return e
	}
	more := func(e *wire.DiskEvidence) { e.Term, e.VoteTerm, e.CommittedIndex = 6, 6, 78 }
	for name, c := range map[string]struct {
		known *wire.DiskEvidence
		want  string // empty means healthy
	}{
		"nothing":                             {nil, ""},
		"an earlier start, as much":           {of(2, 102), ""},
		"this start, as much":                 {of(3, 103), ""},
		"this start, which has gone on":       {of(3, 103, more), ""},
		"a start that never met":              {&wire.DiskEvidence{}, ""},
		"a later start":                       {of(4, 104), "start number 4 is known"},
		"a later start with this one's nonce": {of(4, 103), "start number 4 is known"},
		"this number, another start":          {of(3, 999), "this is its start number 3, and start number 3 is known"},
		"an earlier number, another start":    {of(2, 999), "start number 2 is known with another nonce"},
		"a later term":                        {of(2, 102, func(e *wire.DiskEvidence) { e.Term = 6 }), "it is in term 5, and was in term 6"},
		"a later vote":                        {of(2, 102, func(e *wire.DiskEvidence) { e.VoteTerm = 5 }), "its last vote is of term 4, and it voted in term 5"},
		"a committed entry that is not here":  {of(2, 102, func(e *wire.DiskEvidence) { e.CommittedIndex = 78 }), "had the committed entry 78"},
	} {
		for where, known := range map[string]*wire.KnownState{
			"of the last start": {LastStart: c.known},
			"of earlier starts": {LastStart: of(3, 103, more), Before: c.known},
		} {
			if lacks := b.Check(known); (lacks == "") != (c.want == "") || !strings.Contains(lacks, c.want) {
				t.Errorf("%s, %s: %q, want %q", name, where, lacks, c.want)
			}
		}
	}
}

// TestNoncesAreBounded starts a node more often than it remembers nonces.
func TestNoncesAreBounded(t *testing.T) {
	b := start(nil, &wire.StoredState{})
	for range maxNonces + 9 {
		b = start(b.Record(), &wire.StoredState{})
	}
	if n := len(b.Record().GetNonces()); n != maxNonces {
		t.Errorf("%d nonces are kept", n)
	}
	oldest := b.Stored.Boot - maxNonces + 1
	for boot, accused := range map[uint64]bool{oldest: true, oldest - 1: false, 1: false} {
		known := &wire.KnownState{LastStart: &wire.DiskEvidence{Boot: boot, Nonce: 1}}
		if lacks := b.Check(known); (lacks != "") != accused {
			t.Errorf("start %d of %d under another nonce: %q", boot, b.Stored.Boot, lacks)
		}
	}
}
