package metrics

import (
	"cmp"
	"slices"
	"time"
)

const (
	// maxMarks bounds a timeline, to 32 KiB. Thinning leaves at most leftMarks.
	maxMarks  = 2_048
	leftMarks = maxMarks * 3 / 4
	// precision is the share of its age by which a number's date may be wrong: a 32nd, 3 %. That takes some 1,500 marks
	// for ages from a microsecond to a year.
	precision = 32
)

// timeline dates numbers that rise with time: claims by their ids, holds by their tokens. It dates any number of them
// with a fixed amount of memory, because neighbours share a date. Old dates are less exact than recent ones.
type timeline struct {
	// base is the last number before the timeline began. Numbers up to it have no date.
	base  uint64
	marks []mark // ascending in both fields
}

// mark dates the numbers above those of the mark before it.
type mark struct {
	last uint64
	at   time.Duration
}

// begin forgets all dates, and those of numbers up to base for ever.
func (t *timeline) begin(base uint64) {
	t.base, t.marks = base, slices.Grow(t.marks[:0], maxMarks)
}

// add dates the numbers up to last that have no date yet. Both arguments must not decrease.
func (t *timeline) add(last uint64, now time.Duration) {
	if n := len(t.marks); n > 0 && t.marks[n-1].at == now {
		t.marks[n-1].last = last
		return
	}
	if len(t.marks) == maxMarks {
		t.thin(now)
	}
	t.marks = append(t.marks, mark{last, now})
}

// date returns the date of a number. It may be late, by at most the share of its age that precision says.
func (t *timeline) date(number uint64) (at time.Duration, known bool) {
	i, _ := slices.BinarySearchFunc(t.marks, number, func(m mark, number uint64) int { return cmp.Compare(m.last, number) })
	if number <= t.base || i == len(t.marks) {
		return 0, false
	}
	return t.marks[i].at, true
}

// thin merges marks that are old and close together.
func (t *timeline) thin(now time.Duration) {
	for share := time.Duration(precision); len(t.marks) > leftMarks; share /= 2 {
		t.merge(now, max(share, 1))
	}
}

// merge merges neighbours unless that would change a date by more than a share of its age. The last mark stays.
func (t *timeline) merge(now, share time.Duration) {
	kept := t.marks[:1]
	for _, m := range t.marks[1:] {
		if n := len(kept); n > 1 && m.at-kept[n-2].at <= (now-m.at)/share {
			kept[n-1] = m
		} else {
			kept = append(kept, m)
		}
	}
	t.marks = kept
}
