package keyname

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Databases is the number of databases, as Redis has them by default.
const Databases = 16

// emptyKey is the name of the empty key. Otherwise, two digits follow each '%'.
const emptyKey = "%"

// database matches what the names of databases other than 0 begin with. Keys of database 0 must not.
var database = regexp.MustCompile(`^db([0-9]+)/`)

// Names maps keys to names. All names begin with its prefix.
type Names struct{ prefix string }

// New returns Names with a prefix, which may be empty. It returns an error if no name can begin with it.
func New(prefix string) (Names, error) {
	if err := wire.ValidName(prefix + "x"); err != nil {
		return Names{}, fmt.Errorf("no lock name can begin with %q: %w", prefix, err)
	}
	return Names{prefix}, nil
}

// Name returns the lock name of a key. It returns an error if the name would be too long.
func (n Names) Name(db int, key []byte) (string, error) {
	var b strings.Builder
	b.WriteString(n.prefix)
	if db > 0 {
		fmt.Fprintf(&b, "db%d/", db)
	}
	encode(&b, key, db == 0 && database.Match(key))
	name := b.String()
	if err := wire.ValidName(name); err != nil {
		return "", fmt.Errorf("the key %q cannot be a lock: %w", wire.CleanText(string(key), 64), err)
	}
	return name, nil
}

// Key returns the database and the key of a lock name. ok is false if no key has that name.
func (n Names) Key(name string) (db int, key []byte, ok bool) {
	rest, ok := strings.CutPrefix(name, n.prefix)
	if !ok {
		return 0, nil, false
	}
	if found := database.FindStringSubmatch(rest); found != nil {
		db, _ = strconv.Atoi(found[1]) // out of range if it is too large, as below
		if db < 1 || db >= Databases {
			return 0, nil, false
		}
		rest = rest[len(found[0]):]
	}
	if key, ok = decode(rest); !ok {
		return 0, nil, false
	}
	again, err := n.Name(db, key)
	return db, key, err == nil && again == name // another spelling of the key is not its name
}

// encode writes a key as a part of a name. first encodes its first byte even if a name may have it.
func encode(b *strings.Builder, key []byte, first bool) {
	if len(key) == 0 {
		b.WriteString(emptyKey)
		return
	}
	for i := 0; i < len(key); {
		r, size := utf8.DecodeRune(key[i:])
		switch {
		case r == '%', unicode.IsControl(r), r == utf8.RuneError && size == 1, first && i == 0,
			r == '/' && emptiesSegment(key, i), r == '.' && dotSegment(key, i):
			for _, c := range key[i : i+size] {
				fmt.Fprintf(b, "%%%02X", c)
			}
		default:
			b.Write(key[i : i+size])
		}
		i += size
	}
}

// emptiesSegment reports whether the '/' at i would be next to an empty segment. Of several in a row, the last one
// separates segments: the others are encoded in the segment before it.
func emptiesSegment(key []byte, i int) bool {
	return i == 0 || i+1 == len(key) || key[i+1] == '/'
}

// dotSegment reports whether a segment "." or ".." begins at i.
func dotSegment(key []byte, i int) bool {
	if i > 0 && key[i-1] != '/' {
		return false
	}
	segment, _, _ := bytes.Cut(key[i:], []byte("/"))
	return len(segment) == 1 || len(segment) == 2 && segment[1] == '.'
}

func decode(text string) (key []byte, ok bool) {
	if text == emptyKey {
		return []byte{}, true
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			key = append(key, text[i])
			continue
		}
		if i+2 >= len(text) {
			return nil, false
		}
		c, err := strconv.ParseUint(text[i+1:i+3], 16, 8)
		if err != nil {
			return nil, false
		}
		key = append(key, byte(c))
		i += 2
	}
	return key, len(key) > 0
}
