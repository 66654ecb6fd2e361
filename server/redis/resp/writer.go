package resp

import (
	"strconv"

	"github.com/tidwall/redcon"
)

// Writer collects replies. Its zero value writes RESP2.
type Writer struct {
	// RESP3 selects the version of the protocol, which a client changes with HELLO.
	RESP3 bool
	buf   []byte
}

// Bytes returns what was written since the last Reset.
func (w *Writer) Bytes() []byte { return w.buf }

// Len returns the number of these bytes.
func (w *Writer) Len() int { return len(w.buf) }

// Truncate discards all but the first n of these bytes.
func (w *Writer) Truncate(n int) { w.buf = w.buf[:n] }

// keptBytes bounds the buffer that is kept for the next replies.
const keptBytes = 64 << 10

// Reset discards what was written.
func (w *Writer) Reset() {
	if w.buf = w.buf[:0]; cap(w.buf) > keptBytes {
		w.buf = nil
	}
}

// Status writes a simple string, such as OK.
func (w *Writer) Status(text string) { w.buf = redcon.AppendString(w.buf, text) }

// Error writes an error. text begins with its code, such as ERR.
func (w *Writer) Error(text string) { w.buf = redcon.AppendError(w.buf, text) }

// Integer writes an integer.
func (w *Writer) Integer(n int64) { w.buf = redcon.AppendInt(w.buf, n) }

// Bulk writes a string of any bytes.
func (w *Writer) Bulk(b []byte) { w.buf = redcon.AppendBulk(w.buf, b) }

// Text is Bulk for a text.
func (w *Writer) Text(s string) { w.buf = redcon.AppendBulkString(w.buf, s) }

// Array begins an array of n replies.
func (w *Writer) Array(n int) { w.buf = redcon.AppendArray(w.buf, n) }

// Set begins a set of n replies: an array in RESP2.
func (w *Writer) Set(n int) { w.aggregate('~', n, n) }

// Map begins a map of n pairs of replies: a flat array in RESP2.
func (w *Writer) Map(n int) { w.aggregate('%', n, 2*n) }

func (w *Writer) aggregate(kind byte, n, flat int) {
	if !w.RESP3 {
		w.Array(flat)
		return
	}
	w.buf = append(strconv.AppendInt(append(w.buf, kind), int64(n), 10), '\r', '\n')
}

// Null writes that there is no value.
func (w *Writer) Null() {
	if w.RESP3 {
		w.buf = append(w.buf, "_\r\n"...)
		return
	}
	w.buf = redcon.AppendNull(w.buf)
}

// NullArray writes that there is no array.
func (w *Writer) NullArray() {
	if w.RESP3 {
		w.Null()
		return
	}
	w.buf = append(w.buf, "*-1\r\n"...)
}
