package fsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestSnapshotRoundTrip(t *testing.T) {
	for _, m := range []*Machine{New(Level), bootstrapped(t), busy(t, 1), busy(t, 100), guarded(t)} {
		want := snapshotOf(t, m)
		back, err := Restore(iotest.OneByteReader(bytes.NewReader(want)), Level)
		if err != nil {
			t.Fatal(err)
		}
		if got := snapshotOf(t, back); !bytes.Equal(got, want) {
			t.Error("a restored snapshot is written differently")
		}
		if back.Totals() != m.Totals() || back.Token() != m.Token() || back.Revision() != m.Revision() {
			t.Errorf("totals %+v, wanted %+v", back.Totals(), m.Totals())
		}
	}
}

// TestDamagedSnapshotIsRefused truncates a snapshot at every byte and flips one bit of every byte; every
// bit in a full run.
func TestDamagedSnapshotIsRefused(t *testing.T) {
	good := shortSnapshot(t)
	refused := func(what string, at int, data []byte) {
		t.Helper()
		m, err := Restore(bytes.NewReader(data), Level)
		if m != nil || !errors.Is(err, ErrMalformed) || errors.Is(err, ErrUpgrade) {
			t.Fatalf("%s at %d of %d: %v", what, at, len(good), err)
		}
	}
	for n := range good {
		refused("cut", n, good[:n])
	}
	for bit := range len(good) * 8 {
		if !full && bit/8%8 != bit%8 {
			continue
		}
		flipped := bytes.Clone(good)
		flipped[bit/8] ^= 1 << (bit % 8)
		refused("flip", bit/8, flipped)
	}
	refused("a byte more", len(good), append(bytes.Clone(good), 0))
	refused("twice", len(good), append(bytes.Clone(good), good...))

	_, err := Restore(bytes.NewReader(good[:len(good)/2]), Level)
	if !strings.Contains(err.Error(), "truncated") {
		t.Errorf("half a snapshot: %v", err)
	}
}

// shortSnapshot returns the shortest snapshot of some busy machines: damaging it everywhere takes time
// proportional to the square of its length.
func shortSnapshot(t *testing.T) []byte {
	t.Helper()
	short := snapshotOf(t, busy(t, 1))
	for seed := range uint64(30) {
		if s := snapshotOf(t, busy(t, seed*100)); len(s) < len(short) {
			short = s
		}
	}
	return short
}

// records returns the framed records of a snapshot, without the trailer.
func records(t testing.TB, snapshot []byte) [][]byte {
	t.Helper()
	var found [][]byte
	for len(snapshot) > 0 {
		length, n := binary.Uvarint(snapshot)
		found = append(found, snapshot[:n+int(length)])
		snapshot = snapshot[n+int(length):]
	}
	return found[:len(found)-1]
}

// sealed appends a correct trailer to records.
func sealed(t testing.TB, records ...[]byte) []byte {
	t.Helper()
	body := bytes.Join(records, nil)
	sum := sha256.Sum256(body)
	return append(body, framed(t, &wire.SnapshotRecord{Record: &wire.SnapshotRecord_Trailer{Trailer: &wire.SnapshotTrailer{
		Records: uint64(len(records)), Sha256: sum[:],
	}}})...)
}

func framed(t testing.TB, record *wire.SnapshotRecord) []byte {
	t.Helper()
	data, err := marshal.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.AppendUvarint(nil, uint64(len(data))), data...)
}

// TestForgedSnapshotIsRefused omits, duplicates and swaps records under a correct checksum: the result
// must be refused, or be a consistent state.
func TestForgedSnapshotIsRefused(t *testing.T) {
	forge(t, records(t, snapshotOf(t, busy(t, 1))))
	forge(t, records(t, snapshotOf(t, guarded(t))))
}

func forge(t *testing.T, good [][]byte) {
	t.Helper()
	for i := range good {
		for name, forged := range map[string][][]byte{
			"without": append(append([][]byte{}, good[:i]...), good[i+1:]...),
			"doubled": append(append([][]byte{}, good[:i+1]...), good[i:]...),
			"swapped": append(append(append([][]byte{}, good[:i]...), good[(i+1)%len(good)], good[i]), good[min(i+2, len(good)):]...),
		} {
			m, err := Restore(bytes.NewReader(sealed(t, forged...)), Level)
			switch {
			case err == nil && name == "without" && isMissable(t, good, i):
			case err == nil, !errors.Is(err, ErrMalformed):
				t.Errorf("%s record %d: %v", name, i, err)
			}
			if m != nil && m.Check() != nil {
				t.Errorf("%s record %d: restored though %v", name, i, m.Check())
			}
		}
	}
}

// isMissable reports whether a snapshot may be complete without its record i: a list may be shorter, but
// a header, a lock with claims, and a session that another record names must exist.
func isMissable(t *testing.T, records [][]byte, i int) bool {
	t.Helper()
	record := unframed(t, records[i])
	if record.GetHeader() != nil || record.GetLock() != nil {
		return false
	}
	session := record.GetSession().GetId()
	return session == 0 || !slices.ContainsFunc(records, func(other []byte) bool {
		r := unframed(t, other)
		return r.GetClaim().GetSessionId() == session || r.GetOutcome().GetSessionId() == session
	})
}

func unframed(t *testing.T, framed []byte) *wire.SnapshotRecord {
	t.Helper()
	_, n := binary.Uvarint(framed)
	record := &wire.SnapshotRecord{}
	if err := proto.Unmarshal(framed[n:], record); err != nil {
		t.Fatal(err)
	}
	return record
}

// TestHostileLengthTakesNoMemory checks that the length of a record is checked before memory is allocated
// for its bytes.
func TestHostileLengthTakesNoMemory(t *testing.T) {
	for _, length := range []uint64{maxRecordBytes + 1, 1 << 40, 1<<64 - 1} {
		data := binary.AppendUvarint(nil, length)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Restore(bytes.NewReader(data), Level)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("length %d: %v", length, err)
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 512<<10 {
			t.Errorf("length %d took %d bytes", length, taken)
		}
	}
}

// TestLengthsOfRecords tries the maximum length, one more, and a length that is not a valid varint.
func TestLengthsOfRecords(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"the longest":   {binary.AppendUvarint(nil, maxRecordBytes), "truncated"},
		"one too long":  {binary.AppendUvarint(nil, maxRecordBytes+1), "has more than"},
		"no number":     {bytes.Repeat([]byte{0xff}, 20), "has more than"},
		"nothing":       {nil, "truncated"},
		"half a number": {[]byte{0xff}, "truncated"},
	} {
		if _, err := Restore(bytes.NewReader(c.data), Level); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestSnapshotErrorsOfTheDiskPassThrough(t *testing.T) {
	broken := errors.New("disk on fire")
	good := snapshotOf(t, busy(t, 1))
	_, err := Restore(io.MultiReader(bytes.NewReader(good[:20]), iotest.ErrReader(broken)), Level)
	if !errors.Is(err, broken) || errors.Is(err, ErrMalformed) {
		t.Errorf("restore: %v", err)
	}
	if err := busy(t, 1).WriteSnapshot(failingWriter{broken}); !errors.Is(err, broken) {
		t.Errorf("write: %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// TestSnapshotOfNewerProgram checks that the snapshot is refused with ErrUpgrade, but only if it is intact.
func TestSnapshotOfNewerProgram(t *testing.T) {
	newer := New(Level + 1)
	replay(t, newer, []*wire.Command{
		{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Members: []*wire.Member{{Id: "n1", Level: Level + 1}}}}},
		{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: Level + 1}}},
	})
	if newer.FeatureLevel() != Level+1 {
		t.Fatal("the level was not raised")
	}
	data := snapshotOf(t, newer)
	if _, err := Restore(bytes.NewReader(data), Level); !errors.Is(err, ErrUpgrade) || errors.Is(err, ErrMalformed) {
		t.Errorf("a snapshot of a higher level: %v", err)
	}
	if _, err := Restore(bytes.NewReader(data), Level+1); err != nil {
		t.Error(err)
	}
	data[len(data)-1] ^= 1
	if _, err := Restore(bytes.NewReader(data), Level); !errors.Is(err, ErrMalformed) || errors.Is(err, ErrUpgrade) {
		t.Errorf("a damaged one: %v", err)
	}
	version := framed(t, &wire.SnapshotRecord{Record: &wire.SnapshotRecord_Header{Header: &wire.SnapshotHeader{Version: 2}}})
	if _, err := Restore(bytes.NewReader(sealed(t, version)), Level); !errors.Is(err, ErrUpgrade) {
		t.Errorf("a newer format: %v", err)
	}
}

// TestGrantOfARecord restores the grant of a claim that was queued at 100 ms, in revision 7.
func TestGrantOfARecord(t *testing.T) {
	for name, c := range map[string]struct {
		token, revision uint64
		granted         int64
		want            string // "" if the record is accepted
		late            bool
	}{
		"a wait":                        {want: ""},
		"granted at once":               {token: 5, revision: 7, granted: 100},
		"granted later":                 {token: 5, revision: 8, granted: 100, late: true},
		"granted later in its entry":    {token: 5, revision: 7, granted: 101, late: true},
		"a token without a grant":       {token: 5, granted: 100, want: "has token 5, granted at 0"},
		"a grant without a token":       {revision: 8, want: "has token 0, granted at 8"},
		"a time of what is not granted": {granted: 1, want: "has token 0, granted at 0"},
	} {
		claim := &claim{id: 7, since: 100}
		err := claim.grantFrom(&wire.ClaimRecord{Id: 7, QueuedUnixMs: 100, Token: c.token, GrantedRevision: c.revision, GrantedUnixMs: c.granted})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err == nil && (claim.late() != c.late || (claim.more != nil) != c.late || claim.queued() != 100 || claim.granted() != c.granted || claim.grantedRevision() != c.revision) {
			t.Errorf("%s: %+v", name, claim)
		}
	}
}
