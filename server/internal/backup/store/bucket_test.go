package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is an S3 server in memory. Requests pass the function in front, if there is one, which reports whether it has
// answered.
type service struct {
	*httptest.Server
	backend gofakes3.Backend
	front   atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
}

func newService(t *testing.T, buckets ...string) *service {
	t.Helper()
	backend := s3mem.New()
	for _, name := range buckets {
		if err := backend.CreateBucket(name); err != nil {
			t.Fatal(err)
		}
	}
	fake, s := gofakes3.New(backend).Server(), &service{backend: backend}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if front := s.front.Load(); front == nil || !(*front)(w, r) {
			fake.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	return s
}

func (s *service) answer(front func(w http.ResponseWriter, r *http.Request) bool) {
	s.front.Store(&front)
}

func (s *service) recover() { s.front.Store(nil) }

// open returns the bucket below a prefix. It waits that long for answers.
func (s *service) open(t *testing.T, path string, timeout time.Duration) *Bucket {
	t.Helper()
	b, err := openBucket("s3://"+path+"?insecure=true&region=us-east-1&endpoint="+strings.TrimPrefix(s.URL, "http://"), timeout, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return b
}

// TestBucket verifies that objects are stored, listed below their prefix, and removed, also those with several parts.
func TestBucket(t *testing.T) {
	s := newService(t, "locks")
	b, root := s.open(t, "locks/prod/eu", answerTimeout), s.open(t, "locks", answerTimeout)
	put(t, b, named(1), "one")
	put(t, root, named(2), "two")
	put(t, root, "notes", "three")
	large := strings.Repeat("0123456789abcdef", partBytes/16) + "and more"
	put(t, b, named(3), large)
	if got := listed(t, b); fmt.Sprint(got) != fmt.Sprint([]string{named(1), named(3)}) || content(t, b, named(1)) != "one" || content(t, b, named(3)) != large {
		t.Errorf("it has %v", got)
	}
	if got := listed(t, root); len(got) != 1 || got[0] != named(2) {
		t.Errorf("without a prefix it has %v", got)
	}
	for range 2 {
		if err := b.Remove(t.Context(), named(3)); err != nil {
			t.Error(err)
		}
	}
	if got := listed(t, b); len(got) != 1 {
		t.Errorf("it still has %v", got)
	}
}

// TestBucketReplacesNothing verifies that an object of the same name stays, and that a tag changes with the content.
func TestBucketReplacesNothing(t *testing.T) {
	b := newService(t, "locks").open(t, "locks/prod", answerTimeout)
	put(t, b, named(1), "one")
	tag := func() string {
		files, err := b.List(t.Context())
		if err != nil || len(files) != 1 || files[0].Tag == "" {
			t.Fatal(files, err)
		}
		return files[0].Tag
	}
	first := tag()
	write, check := text("two")
	if err := b.Put(t.Context(), named(1), write, check); !errors.Is(err, fs.ErrExist) || content(t, b, named(1)) != "one" || tag() != first {
		t.Errorf("%v", err)
	}
	if err := b.upload(t.Context(), named(1), write); err != nil || tag() == first {
		t.Errorf("replaced, it has the tag %q; %v", tag(), err)
	}
}

// TestMoreThanAPageIsListed verifies that a list has more objects than one answer of the server.
func TestMoreThanAPageIsListed(t *testing.T) {
	s := newService(t, "locks")
	b := s.open(t, "locks/prod", answerTimeout)
	want := map[string]bool{}
	for i := range 1_001 {
		name := Name{"c1", time.Date(2026, 11, 1, 0, 0, i, 0, time.UTC), uint64(i), 0}.String()
		if _, err := s.backend.PutObject("locks", "prod/"+name, nil, strings.NewReader("x"), 1, nil); err != nil {
			t.Fatal(err)
		}
		want[name] = true
	}
	pages := atomic.Int64{}
	s.answer(func(_ http.ResponseWriter, r *http.Request) bool {
		pages.Add(1)
		return false
	})
	for _, name := range listed(t, b) {
		delete(want, name)
	}
	if len(want) > 0 || pages.Load() < 2 {
		t.Errorf("%d are missing in %d pages", len(want), pages.Load())
	}
}

// TestFailuresOfAServer verifies that each failure of a server fails a backup in time, and that the next one succeeds
// once the server has recovered.
func TestFailuresOfAServer(t *testing.T) {
	s := newService(t, "locks")
	b, hasty := s.open(t, "locks/a", answerTimeout), s.open(t, "locks/a", time.Second)
	released := make(chan struct{})
	fails := func(code int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(code)
			return true
		}
	}
	for name, front := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"it refuses": fails(http.StatusForbidden),
		"it fails":   fails(http.StatusInternalServerError),
		"it hangs": func(_ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			<-released
			return true
		},
		"it hangs up": func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) },
		"it returns half": func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet {
				return false
			}
			w.Header().Set("Content-Length", "7")
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			_, _ = io.WriteString(w, "ano")
			return true
		},
		"it returns something else": func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet {
				return false
			}
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			_, _ = io.WriteString(w, "Another")
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.answer(front)
			write, check := text("another")
			began := time.Now()
			err := hasty.Put(t.Context(), named(1), write, check)
			if err == nil || time.Since(began) > 30*time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			if damaged := errors.Is(err, ErrDamaged); damaged != (name == "it returns something else") {
				t.Errorf("%v", err)
			}
			t.Logf("after %v: %v", time.Since(began).Round(time.Millisecond), err)
			s.recover()
			if got := listed(t, b); len(got) != 0 {
				t.Errorf("the bucket has %v", got)
			}
			put(t, b, named(1), "another")
			if err := b.Remove(t.Context(), named(1)); err != nil {
				t.Error(err)
			}
		})
	}
	close(released)
}

// TestFailedUploadStoresNothing verifies that a backup whose local file cannot be read does not appear in the bucket.
func TestFailedUploadStoresNothing(t *testing.T) {
	b := newService(t, "locks").open(t, "locks", answerTimeout)
	_, check := text("another")
	for _, size := range []int{3, partBytes + 3} {
		err := b.Put(t.Context(), named(1), func(w io.Writer) error {
			_, err := w.Write(make([]byte, size))
			return errors.Join(err, errDisk)
		}, check)
		if !errors.Is(err, errDisk) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if got := listed(t, b); len(got) > 0 {
			t.Errorf("the bucket has %v", got)
		}
	}
}

// TestURLs verifies which URLs are accepted, and that errors say what to write.
func TestURLs(t *testing.T) {
	for text, want := range map[string]string{
		"s3://locks":                                     "s3://locks/ at s3.amazonaws.com",
		"s3://locks/a/b/?region=eu-west-1":               "s3://locks/a/b/ at s3.amazonaws.com",
		"s3://locks/a?endpoint=minio:9000&insecure=true": "s3://locks/a/ at minio:9000",
		"http://locks/a":                                 "s3://BUCKET/PREFIX",
		"s3:locks":                                       "s3://BUCKET/PREFIX",
		"locks":                                          "s3://BUCKET/PREFIX",
		"s3://lo%zzcks":                                  "s3://BUCKET/PREFIX",
		"s3://L/a":                                       "cannot be the name of a bucket",
		"s3:///a":                                        "cannot be the name of a bucket",
		"s3://key:secret@locks/a":                        "AWS_ACCESS_KEY_ID",
		"s3://locks/a?end=minio":                         `no option "end"`,
		"s3://locks/a?insecure=perhaps":                  "true or false",
		"s3://locks/a?region=Mars%20":                    "cannot be a region",
		"s3://locks/a?endpoint=http://minio:9000":        "write it as HOST:PORT",
	} {
		b, err := OpenBucket(text)
		got := fmt.Sprint(err)
		if err == nil {
			got = b.String()
			b.close()
		}
		if !strings.Contains(got, want) || strings.Contains(got, "secret@") {
			t.Errorf("%s: %s, want %q", text, got, want)
		}
	}
}
