package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// stream returns the header of a batch, followed by entries.
func stream(length, count uint32, entries ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, length)
	b = binary.BigEndian.AppendUint32(b, count)
	return append(binary.BigEndian.AppendUint64(b, 1), entries...)
}

// head returns the header of an entry with size bytes of data.
func head(size uint32) []byte {
	return append(binary.BigEndian.AppendUint32(nil, size), make([]byte, entryHeader-4)...)
}

// TestMalformedBatches verifies the error for each way in which a batch can be malformed.
func TestMalformedBatches(t *testing.T) {
	const largest = maxSectors * bodySize
	one := batchHeader + entryHeader
	for _, test := range []struct {
		name   string
		stream []byte
		want   error
	}{
		{"nothing", nil, errCutOff},
		{"less than a head", stream(batchHeader, 0)[:batchHeader-1], errCutOff},
		{"no entries", stream(batchHeader, 0), nil},
		{"zeros behind it", stream(batchHeader, 0, 0, 0), nil},
		{"a length of less than the head", stream(batchHeader-1, 0), errWrongSize},
		{"more than a file has", stream(largest+1, 0), errWrongSize},
		{"as much as a file has, and it is not there", stream(largest, 0), errCutOff},
		{"a byte is missing", stream(batchHeader+1, 0), errCutOff},
		{"a byte too many", stream(batchHeader+1, 0, 0), errLeftOver},
		{"an entry too many", stream(uint32(one), 0, head(0)...), errLeftOver},
		{"an entry is missing", stream(batchHeader, 1), errCutOff},
		{"a part of an entry", stream(uint32(one-1), 1, head(0)[:entryHeader-1]...), errCutOff},
		{"an entry without data", stream(uint32(one), 1, head(0)...), nil},
		{"a byte of data is missing", stream(uint32(one), 1, head(1)...), errCutOff},
		{"data behind the length", stream(uint32(one), 1, append(head(1), 7)...), errCutOff},
		{"an entry with data", stream(uint32(one+1), 1, append(head(1), 7)...), nil},
	} {
		first, count, err := readBatch(test.stream, func(int, int, *raft.Log) error { return nil })
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
		if err == nil && (first != 1 || count != binary.BigEndian.Uint32(test.stream[4:])) {
			t.Errorf("%s: %d entries from %d on", test.name, count, first)
		}
	}
	if _, err := batchLength(stream(largest, 0)); err != nil {
		t.Error(err)
	}
	if _, _, err := readBatch(stream(uint32(one), 1, head(0)...), func(int, int, *raft.Log) error { return errFault }); err != errFault {
		t.Error(err)
	}
}

// TestMalformedBatchIsDamage verifies that a batch of whole sectors that no version of the program writes is
// damage.
func TestMalformedBatchIsDamage(t *testing.T) {
	for name, body := range map[string][]byte{
		"cut off":    stream(batchHeader, 1),
		"left over":  stream(batchHeader+1, 0, 0),
		"wrong size": stream(batchHeader-1, 0),
	} {
		c := life(t, 1)
		content := c.disk.files[nameOf(1)].content
		sealBody(c.log.current().salt, firstBatch, firstBatch, body, content)
		if _, err := Open(c.disk, small); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "the batch at sector 2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOrderOfEntries verifies that indexes must be consecutive and terms must not decrease.
func TestOrderOfEntries(t *testing.T) {
	entry := func(term uint64) *raft.Log { return &raft.Log{Term: term} }
	type batch struct {
		first   uint64
		entries []*raft.Log
	}
	for name, test := range map[string]struct {
		batches []batch
		want    string
	}{
		"they begin anywhere":      {[]batch{{5, []*raft.Log{entry(2), entry(2)}}, {7, []*raft.Log{entry(2), entry(3)}}}, ""},
		"index 0":                  {[]batch{{0, []*raft.Log{entry(2)}}}, "entry 0 stands behind entry 0"},
		"one is missing":           {[]batch{{5, []*raft.Log{entry(2)}}, {7, []*raft.Log{entry(2)}}}, "entry 7 stands behind entry 5"},
		"one comes twice":          {[]batch{{5, []*raft.Log{entry(2)}}, {5, []*raft.Log{entry(2)}}}, "entry 5 stands behind entry 5"},
		"a term falls":             {[]batch{{5, []*raft.Log{entry(2)}}, {6, []*raft.Log{entry(1)}}}, "entry 6 of term 1 stands behind term 2"},
		"a term falls in a batch":  {[]batch{{5, []*raft.Log{entry(3), entry(2)}}}, "entry 6 of term 2 stands behind term 3"},
		"a term falls, after more": {[]batch{{5, []*raft.Log{entry(1), entry(3)}}, {7, []*raft.Log{entry(2)}}}, "entry 7 of term 2 stands behind term 3"},
	} {
		c := life(t, 1)
		content, at := c.disk.files[nameOf(1)].content, uint32(firstBatch)
		for _, b := range test.batches {
			sector := content[at*sectorSize:][:sectorSize]
			writeBatch(sector, b.first, b.entries)
			seal(c.log.current().salt, at, sector)
			at++
		}
		_, err := Open(c.disk, small)
		if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFileThatIsNotKnownOf verifies that a file that the previous one does not know of must be empty.
func TestFileThatIsNotKnownOf(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(salt uint32, last []byte)
		damaged bool
	}{
		"nothing":           {func(uint32, []byte) {}, false},
		"a batch":           {func(salt uint32, s []byte) { sealBody(salt, 2, 2, stream(batchHeader, 0), s) }, true},
		"part of a batch":   {func(salt uint32, s []byte) { sealBody(salt, 3, 2, nil, s) }, true},
		"a sector is torn":  {func(_ uint32, s []byte) { s[firstBatch*sectorSize+9] = 1 }, true},
		"a spoiled sector ": {func(salt uint32, s []byte) { sealBody(salt+1, 2, 2, nil, s) }, true},
	} {
		c := life(t, 1)
		for _, err := range []error{c.log.StoreLogs([]*raft.Log{{Index: 1, Term: 1}, {Index: 2, Term: 1}}), c.log.DeleteRange(2, 2)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		files := imageOf(c.disk)
		clear(files[nameOf(1)][followedSector*sectorSize:][:sectorSize])
		test.change(c.log.current().salt, files[nameOf(2)])
		if _, err := Open(files.disk(), small); err != nil && !test.damaged || errors.Is(err, ErrDamaged) != test.damaged {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// sealBody writes one sector of the batch that begins at start.
func sealBody(salt, number, start uint32, body, sectors []byte) {
	s := sectors[number*sectorSize:][:sectorSize]
	clear(s)
	copy(s[bodyAt:], body)
	binary.BigEndian.PutUint32(s, mark<<24|start)
	s[sectorSize-1] = mark
	binary.BigEndian.PutUint32(s[4:], checksum(salt, number, s))
}

func TestLook(t *testing.T) {
	const salt, number = 5, 7
	sealed := func(change func([]byte)) []byte {
		s := make([]byte, sectorSize)
		binary.BigEndian.PutUint32(s, mark<<24|3)
		s[sectorSize-1] = mark
		change(s)
		binary.BigEndian.PutUint32(s[4:], checksum(salt, number, s))
		return s
	}
	keep := func([]byte) {}
	altered := func(at int, value byte) []byte {
		s := sealed(keep)
		s[at] = value
		return s
	}
	for _, test := range []struct {
		name   string
		sector []byte
		want   state
	}{
		{"as written", sealed(keep), whole},
		{"blank", blankBytes[:], blank},
		{"a zero at its beginning", altered(0, 0), torn},
		{"a zero at its end", altered(sectorSize-1, 0), torn},
		{"only its end", append(make([]byte, sectorSize-1), mark), torn},
		{"another byte", altered(100, 1), spoiled},
		{"another start", altered(3, 4), spoiled},
		{"another checksum", altered(7, sealed(keep)[7]^1), spoiled},
		{"another mark at its beginning", sealed(func(s []byte) { s[0] = 1 }), spoiled},
		{"another mark at its end", sealed(func(s []byte) { s[sectorSize-1] = 1 }), spoiled},
		{"zero at its beginning, with a checksum", sealed(func(s []byte) { s[0] = 0 }), torn},
		{"zero at its end, with a checksum", sealed(func(s []byte) { s[sectorSize-1] = 0 }), torn},
	} {
		start, is := look(salt, number, test.sector)
		if is != test.want || (is == whole) != (start == 3) {
			t.Errorf("%s: %d, start %d", test.name, is, start)
		}
	}
	if _, is := look(salt, number+1, sealed(keep)); is != spoiled {
		t.Error("a sector passes for another")
	}
	if _, is := look(salt+1, number, sealed(keep)); is != spoiled {
		t.Error("a sector passes for one of another file")
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]uint64{
		nameOf(1):                        1,
		nameOf(1 << 63):                  1 << 63,
		"1.segment":                      0,
		"00000000000000001.segment":      0,
		"+000000000000001.segment":       0,
		"000000000000000x.segment":       0,
		"99999999999999999999.segment":   0,
		"0000000000000001":               0,
		"0000000000000001.segment.new":   0,
		"0000000000000001.segments":      0,
		".segment":                       0,
		"backup-0000000000000001.bolt":   0,
		"0000000000000001.segment.saved": 0,
	} {
		if sequence, ok := sequenceOf(name); ok != (want != 0) || ok && sequence != want {
			t.Errorf("%s: %d, %v", name, sequence, ok)
		}
	}
}

func TestHeaders(t *testing.T) {
	good := header{sectors: 16, id: testID, sequence: 4, after: 9, before: 3}
	const other, wrong, newer = "of another file", "checksum of its header", "format 2, this program reads up to 1: upgrade it"
	keep := func(*header) {}
	for _, test := range []struct {
		name   string
		change func(*header)
		start  uint32
		add    byte // added to the byte at index at
		at     int
		want   string
	}{
		{"good", keep, 0, 0, 0, ""},
		{"another log's", func(h *header) { h.id[7]++ }, 0, 0, 0, other},
		{"another file's", func(h *header) { h.sequence++ }, 0, 0, 0, other},
		{"no room for sectors 0 and 1", func(h *header) { h.sectors = firstBatch - 1 }, 0, 0, 0, other},
		{"no room for a batch", func(h *header) { h.sectors = firstBatch }, 0, 0, 0, ""},
		{"the most sectors", func(h *header) { h.sectors = maxSectors }, 0, 0, 0, ""},
		{"too many sectors", func(h *header) { h.sectors = maxSectors + 1 }, 0, 0, 0, other},
		{"other magic", keep, 0, 1, 0, wrong},
		{"part of a batch", keep, 1, 0, 0, wrong},
		{"a newer format", keep, 0, 1, len(magic) + 3, newer},
	} {
		h, sectors := good, make([]byte, sectorSize)
		test.change(&h)
		body := h.bytes()
		body[test.at] += test.add
		sealBody(saltOf(testID, 4), headerSector, test.start, body, sectors)
		f, err := openFile(image{nameOf(4): sectors}.disk(), testID, 4)
		switch {
		case test.want == "" && (err != nil || f.header != h || f.end != firstBatch || f.last != h.after):
			t.Errorf("%s: %v", test.name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, ErrDamaged) != (test.want != newer)):
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestFollowed(t *testing.T) {
	f := &file{header: header{id: testID, sequence: 4}, salt: 5}
	next := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	for _, test := range []struct {
		name    string
		write   func(sectors []byte)
		want    state
		damaged bool
	}{
		{"blank", func([]byte) {}, blank, false},
		{"followed", func(s []byte) { sealBody(5, 1, 1, next(5), s) }, whole, false},
		{"torn", func(s []byte) { sealBody(5, 1, 1, next(5), s); s[sectorSize] = 0 }, torn, false},
		{"spoiled", func(s []byte) { sealBody(5, 1, 1, next(5), s); s[sectorSize+20]++ }, spoiled, true},
		{"by itself", func(s []byte) { sealBody(5, 1, 1, next(4), s) }, whole, true},
		{"by the one after the next", func(s []byte) { sealBody(5, 1, 1, next(6), s) }, whole, true},
		{"part of the header", func(s []byte) { sealBody(5, 1, 0, next(5), s) }, whole, true},
	} {
		sectors := make([]byte, 2*sectorSize)
		test.write(sectors)
		if is, err := f.followed(sectors); is != test.want || errors.Is(err, ErrDamaged) != test.damaged {
			t.Errorf("%s: %d, %v", test.name, is, err)
		}
	}
}

// TestRemains checks what may follow the last complete batch. The file has eight sectors; the test varies the
// last six, where a batch of three sectors begins at sector 2.
func TestRemains(t *testing.T) {
	f := &file{header: header{id: testID, sequence: 4}, salt: 5}
	batch := make([]byte, 3*sectorSize)
	writeBatch(batch, 1, []*raft.Log{{Index: 1, Data: make([]byte, 1000)}})
	seal(5, 2, batch)
	const nothing, unfinishedBatch = "", "unfinished"
	blanked := func(numbers ...uint32) func([]byte) {
		return func(s []byte) {
			for _, n := range numbers {
				clear(s[n*sectorSize:][:sectorSize])
			}
		}
	}
	then := func(steps ...func([]byte)) func([]byte) {
		return func(s []byte) {
			for _, do := range steps {
				do(s)
			}
		}
	}
	written := func(number, start uint32, body ...byte) func([]byte) {
		return func(s []byte) { sealBody(5, number, start, body, s) }
	}
	set := func(at int, value byte) func([]byte) { return func(s []byte) { s[at] = value } }
	begins := func(length uint32) func([]byte) { return written(2, 2, stream(length, 0)...) }
	for _, test := range []struct {
		name   string
		change func([]byte)
		want   string
	}{
		{"nothing", blanked(2, 3, 4), nothing},
		{"its first sector is blank", blanked(2), unfinishedBatch},
		{"its second sector is blank", blanked(3), unfinishedBatch},
		{"its last sector is blank", blanked(4), unfinishedBatch},
		{"its last sector is torn", set(4*sectorSize, 0), unfinishedBatch},
		{"its first sector is torn", set(2*sectorSize, 0), unfinishedBatch},
		{"its first sector is torn, the others blank", then(blanked(3, 4), set(2*sectorSize, 0)), unfinishedBatch},
		{"only its last sector", blanked(2, 3), unfinishedBatch},
		{"it is blank at first and torn behind", then(blanked(2, 3, 4), set(7*sectorSize+9, 1)), unfinishedBatch},
		{"a sector is spoiled", set(3*sectorSize+9, 1), "checksum of sector 3"},
		{"a sector far behind is spoiled", then(blanked(3), written(7, 7), set(7*sectorSize+9, 1)), "checksum of sector 7"},
		{"another batch stands behind", then(blanked(2, 3, 4), written(5, 5)), "the batch at sector 2 is gone, and one behind it, at 5"},
		{"a batch stands within", then(blanked(2), written(3, 3)), "the batch at sector 2 is gone, and one behind it, at 3"},
		{"a sector of it behind its end", then(blanked(3), written(5, 2)), "sector 5 stands behind"},
		{"a torn sector behind its end", then(blanked(3), set(5*sectorSize+9, 1)), "sector 5 stands behind"},
		{"less than its head", begins(batchHeader - 1), "impossible length"},
		{"more than the file", begins(6*bodySize + 1), "impossible length"},
		{"as much as the file", begins(6 * bodySize), unfinishedBatch},
	} {
		sectors := append(make([]byte, 2*sectorSize), batch...)
		sectors = append(sectors, make([]byte, 3*sectorSize)...)
		if test.change(sectors); test.name == "as much as the file" {
			blanked(3, 4)(sectors)
		}
		unfinished, err := f.remains(sectors, 2)
		if got := fmt.Sprint(err); err != nil && (!errors.Is(err, ErrDamaged) || test.want == "" || !strings.Contains(got, test.want)) ||
			err == nil && (test.want != nothing && test.want != unfinishedBatch || unfinished != (test.want == unfinishedBatch)) {
			t.Errorf("%s: %v, %v", test.name, unfinished, err)
		}
	}
	if unfinished, err := f.remains(make([]byte, 2*sectorSize), 2); unfinished || err != nil {
		t.Errorf("a full file: %v, %v", unfinished, err)
	}
}

// TestBatchAt verifies that a batch is complete if all its sectors are whole and belong to it.
func TestBatchAt(t *testing.T) {
	f := &file{salt: 5}
	sectors := make([]byte, 5*sectorSize)
	writeBatch(sectors[2*sectorSize:], 1, []*raft.Log{{Index: 1, Data: make([]byte, 1000)}})
	seal(5, 2, sectors[2*sectorSize:])
	if count, complete := f.batchAt(sectors, 2); count != 3 || !complete {
		t.Errorf("%d sectors, %v", count, complete)
	}
	for number := uint32(2); number < 5; number++ {
		for what, change := range map[string]func([]byte){
			"of another batch": func(s []byte) { sealBody(5, number, 1, []byte{0, 0, 4}, s) },
			"torn":             func(s []byte) { s[number*sectorSize] = 0 },
		} {
			changed := slices.Clone(sectors)
			if change(changed); f.belongs(changed, number, 2) {
				t.Errorf("sector %d, %s, belongs", number, what)
			}
			if _, complete := f.batchAt(changed, 2); complete {
				t.Errorf("with sector %d %s", number, what)
			}
		}
	}
	if count, complete := f.batchAt(sectors[:4*sectorSize], 2); count != 3 || complete {
		t.Errorf("cut off: %d, %v", count, complete)
	}
	if count, complete := f.batchAt(sectors, 5); count != 0 || complete {
		t.Errorf("behind the end: %d, %v", count, complete)
	}
}

func TestDirectoryErrors(t *testing.T) {
	dir, none := Dir(t.TempDir()), Dir(filepath.Join(t.TempDir(), "none"))
	_, names := none.Names()
	_, create := none.Create("a", 1)
	_, open := dir.Open("a")
	for what, err := range map[string]error{
		"names": names, "create": create, "open": open,
		"rename": dir.Rename("a", "b"), "remove": dir.Remove("a"), "sync": none.Sync(),
	} {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := dir.Sync(); err != nil {
		t.Error(err)
	}
	f, err := dir.Create("b", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close(), dir.Remove("b")); err != nil {
		t.Error(err)
	}
	if err := f.Sync(); err == nil {
		t.Error("a file that is closed was synced")
	}
	if _, err := dir.Create("a", -1); err == nil {
		t.Error("a file of -1 bytes was made")
	}
	if left, err := dir.Names(); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestZeros(t *testing.T) {
	for _, size := range []int64{0, 1, 1 << 20, 1<<20 + 1} {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := zeros(f, size); err != nil {
			t.Error(err)
		}
		if info, err := f.Stat(); err != nil || info.Size() != size {
			t.Errorf("%d bytes, want %d: %v", info.Size(), size, err)
		}
		f.Close()
		if err := zeros(f, size); size > 0 && !errors.Is(err, os.ErrClosed) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
