package replica

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
)

// Bolt follows whatever its pages contain: beyond the end of the file, in cycles, or into a page that it
// considers free and overwrites. Some of these errors crash the process on a goroutine of bolt's, where
// nothing can recover. So inspectPages checks the pages before bolt opens the file. It uses the layout of
// bolt's file format, which does not change:
//
//	page    id 8, flags 2, count of elements 2, overflow 4 (further pages that belong to it)
//	meta    magic 4, version 4, page size 4, flags 4, root 8, sequence 8, freelist 8,
//	        number of pages 8, transaction 8, FNV-1a of these 56 bytes 8; in pages 0 and 1
//	branch  for each child: position of its first key 4, size of that 4, page 8
//	leaf    for each element: flags 4, position of key and value 4, their sizes 4 and 4
//
// Sizes are in bytes. Positions are relative to the element itself. The value of a bucket is its root page,
// 8, and a sequence, 8. If root is 0, the page itself follows.
const (
	pageHeader  = 16
	elementSize = 16
	metaSummed  = 56
	bucketSize  = 16

	boltMagic  = 0xED0CDAED
	branchPage = 1
	leafPage   = 2
	bucketFlag = 1
)

var native = binary.NativeEndian

// pages is the content of a bolt file.
type pages struct {
	path string
	data []byte
	size int // of a page
	used uint64
	seen map[uint64]bool
}

// inspectPages checks both meta pages and every page reachable from the newer one.
func inspectPages(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	p := &pages{path: path, data: data, size: os.Getpagesize(), seen: map[uint64]bool{}}
	root, err := p.metas()
	if err == nil {
		_, err = p.tree(root, nil, nil)
	}
	return err
}

func (p *pages) damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrDamaged, p.path, fmt.Sprintf(format, args...))
}

// metas returns an error unless both meta pages are intact. Bolt itself would continue with the older one,
// and thus with the log before its last transaction, which may have been acknowledged.
func (p *pages) metas() (root uint64, err error) {
	newest := uint64(0)
	for i := range 2 {
		at := i*p.size + pageHeader
		if len(p.data) < at+metaSummed+8 {
			return 0, p.damaged("it is cut off: it has %d bytes", len(p.data))
		}
		meta := p.data[at:]
		sum := fnv.New64a()
		_, _ = sum.Write(meta[:metaSummed])
		if native.Uint32(meta) != boltMagic || sum.Sum64() != native.Uint64(meta[metaSummed:]) {
			return 0, p.damaged("the checksum of page %d is wrong", i)
		}
		p.size = int(native.Uint32(meta[8:]))
		if transaction := native.Uint64(meta[48:]); i == 0 || transaction > newest {
			newest, root, p.used = transaction, native.Uint64(meta[16:]), native.Uint64(meta[40:])
		}
	}
	if whole := uint64(len(p.data) / p.size); p.used > whole {
		return 0, p.damaged("it is cut off: it has %d pages, and had %d", whole, p.used)
	}
	return root, nil
}

// tree checks a page and everything below it. Its keys must be at least low and less than high, where these
// are not nil. tree returns the highest key.
func (p *pages) tree(id uint64, low, high []byte) (highest []byte, err error) {
	page, err := p.take(id)
	if err != nil {
		return nil, err
	}
	return p.elements(id, page, low, high)
}

// take returns a page with its overflow pages, none of which may have been taken before.
func (p *pages) take(id uint64) ([]byte, error) {
	if id < 2 || id >= p.used {
		return nil, p.damaged("page %d is out of bounds", id)
	}
	page := p.data[int(id)*p.size:]
	further := uint64(native.Uint32(page[12:]))
	if native.Uint64(page) != id || id+further >= p.used {
		return nil, p.damaged("page %d is not itself", id)
	}
	for i := id; i <= id+further; i++ {
		if p.seen[i] {
			return nil, p.damaged("page %d is in use twice", i)
		}
		p.seen[i] = true
	}
	return page[:int(further+1)*p.size], nil
}

func (p *pages) elements(id uint64, page, low, high []byte) (highest []byte, err error) {
	kind, count := native.Uint16(page[8:]), int(native.Uint16(page[10:]))
	if kind != branchPage && kind != leafPage || pageHeader+count*elementSize > len(page) || kind == branchPage && count == 0 {
		return nil, p.damaged("page %d of kind %d has %d elements", id, kind, count)
	}
	highest = low
	for i := range count {
		at := pageHeader + i*elementSize
		key, value, err := p.element(id, page, at, kind)
		if err != nil {
			return nil, err
		}
		order := bytes.Compare(highest, key)
		if order > 0 || order == 0 && i > 0 || high != nil && bytes.Compare(key, high) >= 0 {
			return nil, p.damaged("the keys of page %d are out of order", id)
		}
		highest = key
		switch {
		case kind == branchPage:
			next := high
			if i+1 < count {
				if next, _, err = p.element(id, page, at+elementSize, kind); err != nil {
					return nil, err
				}
			}
			highest, err = p.tree(native.Uint64(page[at+8:]), key, next)
		case native.Uint32(page[at:])&bucketFlag != 0:
			err = p.bucket(id, value)
		}
		if err != nil {
			return nil, err
		}
	}
	return highest, nil
}

// element returns the key of an element and, in a leaf, its value.
func (p *pages) element(id uint64, page []byte, at int, kind uint16) (key, value []byte, err error) {
	e := page[at:]
	position, keySize, valueSize := int(native.Uint32(e)), int(native.Uint32(e[4:])), 0
	if kind == leafPage {
		position, keySize, valueSize = int(native.Uint32(e[4:])), int(native.Uint32(e[8:])), int(native.Uint32(e[12:]))
	}
	if position+keySize+valueSize > len(e) {
		return nil, nil, p.damaged("page %d has an element beyond its end", id)
	}
	return e[position : position+keySize], e[position+keySize : position+keySize+valueSize], nil
}

func (p *pages) bucket(id uint64, value []byte) (err error) {
	if len(value) < bucketSize {
		return p.damaged("page %d has a bucket of %d bytes", id, len(value))
	}
	if root := native.Uint64(value); root != 0 {
		_, err = p.tree(root, nil, nil)
		return err
	}
	inline := value[bucketSize:]
	if len(inline) < pageHeader || native.Uint16(inline[8:]) != leafPage {
		return p.damaged("page %d has a bucket without a page", id)
	}
	_, err = p.elements(id, inline, nil, nil)
	return err
}
