package forward

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRewoundRequest(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("consumed"))
	Rewind(r, []byte("body"))
	again, err := r.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []io.Reader{r.Body, again} {
		if text, err := io.ReadAll(body); string(text) != "body" || err != nil || r.ContentLength != 4 {
			t.Errorf("%q of %d bytes, %v", text, r.ContentLength, err)
		}
	}
}
