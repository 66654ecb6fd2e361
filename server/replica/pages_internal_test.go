package replica

import (
	"errors"
	"hash/fnv"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestBucketThatIsCutOff checks buckets that end before their inline page does.
func TestBucketThatIsCutOff(t *testing.T) {
	for size := range bucketSize + pageHeader {
		value := make([]byte, size)
		if size >= bucketSize+10 {
			native.PutUint16(value[bucketSize+8:], leafPage)
		}
		if err := (&pages{path: "raft.db"}).bucket(3, value); !errors.Is(err, ErrDamaged) {
			t.Errorf("a bucket of %d bytes: %v", size, err)
		}
	}
}

// cell is an element of a page: a key with its value or, in a branch page, with its child page.
type cell struct {
	key, value string
	flags      uint32
	child      uint64
}

// boltPage returns a page that ends with its last element.
func boltPage(kind uint16, cells ...cell) []byte {
	page := make([]byte, pageHeader+len(cells)*elementSize)
	native.PutUint16(page[8:], kind)
	native.PutUint16(page[10:], uint16(len(cells)))
	for i, c := range cells {
		at := pageHeader + i*elementSize
		position, size := uint32(len(page)-at), uint32(len(c.key))
		if kind == branchPage {
			native.PutUint32(page[at:], position)
			native.PutUint32(page[at+4:], size)
			native.PutUint64(page[at+8:], c.child)
		} else {
			native.PutUint32(page[at:], c.flags)
			native.PutUint32(page[at+4:], position)
			native.PutUint32(page[at+8:], size)
			native.PutUint32(page[at+12:], uint32(len(c.value)))
		}
		page = append(append(page, c.key...), c.value...)
	}
	return page
}

func leafOf(keys ...string) []byte {
	var cells []cell
	for _, key := range keys {
		cells = append(cells, cell{key: key, value: "v"})
	}
	return boltPage(leafPage, cells...)
}

// bucketOf returns a leaf page with one bucket, which has either a root page or an inline page.
func bucketOf(root uint64, inline ...byte) []byte {
	value := append(native.AppendUint64(nil, root), make([]byte, 8)...)
	return boltPage(leafPage, cell{key: "k", value: string(append(value, inline...)), flags: bucketFlag})
}

// somePages returns a file with the valid leaf pages 2 and 3, and with page 4 of an unknown kind.
func somePages() *pages {
	const size = 128
	p := &pages{path: "raft.db", size: size, used: 5, data: make([]byte, 5*size), seen: map[uint64]bool{}}
	for id, page := range map[uint64][]byte{2: leafOf("a", "b"), 3: leafOf("c", "d"), 4: boltPage(7)} {
		native.PutUint64(page, id)
		copy(p.data[id*size:], page)
	}
	return p
}

// resized overwrites a size of an element, such as its key's. field is the offset of the size in the element.
func resized(page []byte, element, field int, size uint32) []byte {
	native.PutUint32(page[pageHeader+element*elementSize+field:], size)
	return page
}

// TestPageElements checks pages with elements as bolt writes them, and as it never does.
func TestPageElements(t *testing.T) {
	const order, none, beyond, kind = "keys of page 9 are out of order", "a bucket without a page", "beyond its end", "of kind 7"
	branch := func(cells ...cell) []byte { return boltPage(branchPage, cells...) }
	for name, c := range map[string]struct {
		page               []byte
		low, high, highest string
		says               string // error for a damaged page
	}{
		"keys in order":               {page: leafOf("a", "b"), highest: "b"},
		"keys out of order":           {page: leafOf("b", "a"), says: order},
		"a key twice":                 {page: leafOf("a", "a"), says: order},
		"from the lowest on":          {page: leafOf("a", "b"), low: "a", highest: "b"},
		"a key below the lowest":      {page: leafOf("a", "b"), low: "aa", says: order},
		"up to the highest":           {page: leafOf("a", "b"), high: "c", highest: "b"},
		"the bound itself":            {page: leafOf("a", "b"), high: "b", says: order},
		"a leaf without elements":     {page: leafOf(), low: "l", highest: "l"},
		"an element of no bytes":      {page: boltPage(leafPage, cell{})},
		"a branch without elements":   {page: branch(), says: "has 0 elements"},
		"neither leaf nor branch":     {page: boltPage(7), says: kind},
		"more elements than bytes":    {page: boltPage(leafPage, cell{})[:pageHeader+elementSize-1], says: "has 1 elements"},
		"a value beyond the end":      {page: resized(leafOf("a", "b"), 1, 12, 2), says: beyond},
		"two children":                {page: branch(cell{key: "a", child: 2}, cell{key: "c", child: 3}), highest: "d"},
		"a damaged child":             {page: branch(cell{key: "a", child: 4}, cell{key: "c", child: 3}), says: kind},
		"a damaged last child":        {page: branch(cell{key: "a", child: 2}, cell{key: "c", child: 4}), says: kind},
		"a child taken twice":         {page: branch(cell{key: "a", child: 2}, cell{key: "c", child: 2}), says: "in use twice"},
		"a child below its key":       {page: branch(cell{key: "aa", child: 2}), says: "keys of page 2"},
		"a child up to its brother":   {page: branch(cell{key: "a", child: 2}, cell{key: "b", child: 3}), says: "keys of page 2"},
		"a key behind a child's":      {page: branch(cell{key: "a", child: 2}, cell{key: "a", child: 3}), says: "keys of page 2"},
		"a child up to the highest":   {page: branch(cell{key: "a", child: 2}), high: "b", says: "keys of page 2"},
		"a second key beyond the end": {page: resized(branch(cell{key: "a", child: 2}, cell{key: "c", child: 3}), 1, 4, 2), says: beyond},
		"a bucket with a root":        {page: bucketOf(3), highest: "k"},
		"a bucket with a damaged one": {page: bucketOf(4), says: kind},
		"a bucket with its page":      {page: bucketOf(0, leafOf("x", "y")...), highest: "k"},
		"a bucket with nothing in it": {page: bucketOf(0, leafOf()...), highest: "k"},
		"a bucket out of order":       {page: bucketOf(0, leafOf("y", "x")...), says: order},
		"a bucket with a branch":      {page: bucketOf(0, branch(cell{key: "a", child: 2})...), says: none},
		"a value like a bucket":       {page: boltPage(leafPage, cell{key: "k", value: "short"}), highest: "k"},
	} {
		var low, high []byte
		if c.low != "" {
			low = []byte(c.low)
		}
		if c.high != "" {
			high = []byte(c.high)
		}
		highest, err := somePages().elements(9, c.page, low, high)
		if damaged := c.says != ""; errors.Is(err, ErrDamaged) != damaged || damaged && !strings.Contains(err.Error(), c.says) || string(highest) != c.highest {
			t.Errorf("%s: up to %q, %v", name, highest, err)
		}
	}
}

// TestPagesAreTakenOnce takes pages twice, beyond the end, and at the very end of the file.
func TestPagesAreTakenOnce(t *testing.T) {
	p := somePages()
	if _, err := p.take(2); err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint64{2, 5, 6, 1 << 40} {
		if _, err := p.take(id); !errors.Is(err, ErrDamaged) {
			t.Errorf("page %d: %v", id, err)
		}
	}
	if highest, err := p.tree(1<<40, nil, nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("a root beyond the end: up to %q, %v", highest, err)
	}
}

// metaPage is the content of page 0 or 1 after the page header.
type metaPage struct {
	magic                   uint32
	size                    uint32
	root, used, transaction uint64
	flipped                 bool
}

func (m metaPage) bytes() []byte {
	b := make([]byte, metaSummed, metaSummed+8)
	native.PutUint32(b, m.magic)
	native.PutUint32(b[8:], m.size)
	native.PutUint64(b[16:], m.root)
	native.PutUint64(b[40:], m.used)
	native.PutUint64(b[48:], m.transaction)
	sum := fnv.New64a()
	_, _ = sum.Write(b)
	if m.flipped {
		b[4] ^= 1
	}
	return native.AppendUint64(b, sum.Sum64())
}

// TestMetaPages verifies that both meta pages must be intact, and that the newer one counts.
func TestMetaPages(t *testing.T) {
	const size, end = 256, 256 + pageHeader + metaSummed + 8
	for name, c := range map[string]struct {
		first, second metaPage
		bytes         int
		root          uint64
		says          string
	}{
		"the first is newer":      {first: metaPage{root: 3, used: 4, transaction: 8}, second: metaPage{root: 2, used: 3, transaction: 7}, bytes: 4 * size, root: 3},
		"the second is newer":     {first: metaPage{root: 3, used: 9, transaction: 7}, second: metaPage{root: 2, used: 4, transaction: 8}, bytes: 4 * size, root: 2},
		"both are as new":         {first: metaPage{root: 3, used: 4}, second: metaPage{root: 2, used: 3}, bytes: 4 * size, root: 3},
		"fewer pages than before": {first: metaPage{root: 3, used: 5}, bytes: 5*size - 1, says: "it has 4 pages, and had 5"},
		"up to the last byte":     {first: metaPage{root: 3, used: 1}, bytes: end, root: 3},
		"without the last byte":   {first: metaPage{root: 3, used: 1}, bytes: end - 1, says: "it has 335 bytes"},
		"another kind of file":    {first: metaPage{root: 3, used: 4, magic: 1}, bytes: 4 * size, says: "checksum of page 0"},
		"the second is damaged":   {first: metaPage{root: 3, used: 4}, second: metaPage{flipped: true}, bytes: 4 * size, says: "checksum of page 1"},
	} {
		data := make([]byte, 8*size)
		for i, m := range []metaPage{c.first, c.second} {
			m.size = size
			if m.magic == 0 {
				m.magic = boltMagic
			}
			copy(data[i*size+pageHeader:], m.bytes())
		}
		p := &pages{path: "raft.db", size: 2 * size, data: data[:c.bytes]}
		root, err := p.metas()
		if damaged := c.says != ""; errors.Is(err, ErrDamaged) != damaged || damaged && !strings.Contains(err.Error(), c.says) || root != c.root {
			t.Errorf("%s: root %d, %v", name, root, err)
		}
		if err == nil && (p.size != size || p.used != uint64(max(1, c.bytes/size))) {
			t.Errorf("%s: %d pages of %d bytes", name, p.used, p.size)
		}
	}
	if err := inspectPages(filepath.Join(t.TempDir(), logFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
}
