package resp

import "testing"

// TestReplies checks every kind of reply in both versions of the protocol.
func TestReplies(t *testing.T) {
	for name, test := range map[string]struct {
		write        func(*Writer)
		resp2, resp3 string
	}{
		"status":      {func(w *Writer) { w.Status("OK") }, "+OK\r\n", "+OK\r\n"},
		"error":       {func(w *Writer) { w.Error("ERR a\nb") }, "-ERR a b\r\n", "-ERR a b\r\n"},
		"integer":     {func(w *Writer) { w.Integer(-7) }, ":-7\r\n", ":-7\r\n"},
		"bulk":        {func(w *Writer) { w.Bulk([]byte("a\r\nb")) }, "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"},
		"text":        {func(w *Writer) { w.Text("") }, "$0\r\n\r\n", "$0\r\n\r\n"},
		"null":        {(*Writer).Null, "$-1\r\n", "_\r\n"},
		"null array":  {(*Writer).NullArray, "*-1\r\n", "_\r\n"},
		"array":       {func(w *Writer) { w.Array(2) }, "*2\r\n", "*2\r\n"},
		"map":         {func(w *Writer) { w.Map(2) }, "*4\r\n", "%2\r\n"},
		"set":         {func(w *Writer) { w.Set(2) }, "*2\r\n", "~2\r\n"},
		"cut":         {func(w *Writer) { w.Status("OK"); w.Status("NO"); w.Truncate(5) }, "+OK\r\n", "+OK\r\n"},
		"reset":       {func(w *Writer) { w.Status("OK"); w.Reset() }, "", ""},
		"large reset": {func(w *Writer) { w.Bulk(make([]byte, keptBytes)); w.Reset(); w.Integer(int64(cap(w.buf))) }, ":0\r\n", ":0\r\n"},
	} {
		for _, version := range []struct {
			resp3 bool
			want  string
		}{{false, test.resp2}, {true, test.resp3}} {
			w := &Writer{RESP3: version.resp3}
			test.write(w)
			if got := string(w.Bytes()); got != version.want || w.Len() != len(got) {
				t.Errorf("%s: %q, want %q", name, got, version.want)
			}
		}
	}
}
