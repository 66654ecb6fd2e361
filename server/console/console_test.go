package console_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/server/console"
)

// get sends a request, with headers as pairs of a name and a value.
func get(t *testing.T, method, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for pair := range slices.Chunk(header, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	w := httptest.NewRecorder()
	console.Handler().ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) []byte {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// source returns an embedded file from the directory that it is embedded from.
func source(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("ui", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFilesAreServed(t *testing.T) {
	for path, want := range map[string]struct{ name, contentType string }{
		"/ui/":                       {"index.html", "text/html; charset=utf-8"},
		"/ui/index.html":             {"index.html", "text/html; charset=utf-8"},
		"/ui/style.css":              {"style.css", "text/css; charset=utf-8"},
		"/ui/pages/lock.js":          {"pages/lock.js", "text/javascript; charset=utf-8"},
		"/ui/vendor/preact.js":       {"vendor/preact.js", "text/javascript; charset=utf-8"},
		"/ui/icon.svg":               {"icon.svg", "image/svg+xml"},
		"/ui/vendor/htm.LICENSE.txt": {"vendor/htm.LICENSE.txt", "text/plain; charset=utf-8"},
	} {
		r := get(t, http.MethodGet, path)
		if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != want.contentType || r.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %s, %v", path, r.Status, r.Header)
		}
		if !bytes.Equal(body(t, r), source(t, want.name)) {
			t.Errorf("%s is not the file %s", path, want.name)
		}
	}
}

func TestPathsThatLeadToTheConsole(t *testing.T) {
	for _, path := range []string{"/", "/ui"} {
		if r := get(t, http.MethodGet, path); r.StatusCode != http.StatusFound || r.Header.Get("Location") != "/ui/" {
			t.Errorf("%s: %s, to %q", path, r.Status, r.Header.Get("Location"))
		}
	}
	for _, path := range []string{"/ui/nothing", "/ui/pages", "/ui/pages/", "/ui/../doc.go", "/ui/ui/index.html", "/ui//"} {
		if r := get(t, http.MethodGet, path); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
}

// TestHeaders verifies that every response, also that of an unknown path, has the headers that protect the console.
func TestHeaders(t *testing.T) {
	for _, path := range []string{"/", "/ui/", "/ui/main.js", "/ui/nothing"} {
		h := get(t, http.MethodGet, path).Header
		for name, want := range map[string]string{
			"X-Content-Type-Options":       "nosniff",
			"Referrer-Policy":              "no-referrer",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control":                "no-cache",
		} {
			if h.Get(name) != want {
				t.Errorf("%s: %s is %q, want %q", path, name, h.Get(name), want)
			}
		}
		policy := strings.Split(h.Get("Content-Security-Policy"), "; ")
		for _, directive := range []string{
			"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "font-src 'none'", "connect-src 'self'",
			"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
		} {
			if !slices.Contains(policy, directive) {
				t.Errorf("%s: the policy %q lacks %q", path, policy, directive)
			}
		}
		if strings.Contains(h.Get("Content-Security-Policy"), "unsafe") || h.Get("Set-Cookie") != "" {
			t.Errorf("%s: %v", path, h)
		}
	}
}

func TestGzip(t *testing.T) {
	for accept, want := range map[string]bool{
		"gzip": true, "br, gzip;q=0.8": true, "GZIP": true, "gzip; q=1": true,
		"": false, "br": false, "gzip;q=0": false, "gzip;q=0.000": false, "gzip;q=x": false, "x-gzip": false,
	} {
		r := get(t, http.MethodGet, "/ui/main.js", "Accept-Encoding", accept)
		if got := r.Header.Get("Content-Encoding") == "gzip"; got != want {
			t.Errorf("Accept-Encoding %q: compressed is %v", accept, got)
		}
		if r.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("Accept-Encoding %q: Vary is %q", accept, r.Header.Get("Vary"))
		}
		content := body(t, r)
		if want {
			unzipped, err := gzip.NewReader(bytes.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			if content, err = io.ReadAll(unzipped); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(content, source(t, "main.js")) {
			t.Errorf("Accept-Encoding %q: another content", accept)
		}
	}
}

func TestUnchangedFilesAreNotSentAgain(t *testing.T) {
	plain := get(t, http.MethodGet, "/ui/main.js").Header.Get("ETag")
	compressed := get(t, http.MethodGet, "/ui/main.js", "Accept-Encoding", "gzip").Header.Get("ETag")
	if other := get(t, http.MethodGet, "/ui/api.js").Header.Get("ETag"); plain == compressed || plain == other || plain == "" {
		t.Errorf("tags %s, %s, %s", plain, compressed, other)
	}
	for _, tag := range []string{plain, `"x", ` + plain, "W/" + plain, "*"} {
		r := get(t, http.MethodGet, "/ui/main.js", "If-None-Match", tag)
		if r.StatusCode != http.StatusNotModified || len(body(t, r)) != 0 || r.Header.Get("ETag") != plain {
			t.Errorf("If-None-Match %s: %s, %v", tag, r.Status, r.Header)
		}
	}
	if r := get(t, http.MethodGet, "/ui/main.js", "If-None-Match", compressed); r.StatusCode != http.StatusOK {
		t.Errorf("the tag of the compressed form matches the plain one: %s", r.Status)
	}
}

func TestHeadSendsNoBody(t *testing.T) {
	r := get(t, http.MethodHead, "/ui/main.js")
	if len(body(t, r)) != 0 || r.Header.Get("Content-Length") == "0" || r.Header.Get("Content-Length") == "" {
		t.Errorf("Content-Length %q", r.Header.Get("Content-Length"))
	}
}

// modules returns the names of the JavaScript modules.
func modules(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"ui/*.js", "ui/*/*.js"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			names = append(names, strings.TrimPrefix(filepath.ToSlash(name), "ui/"))
		}
	}
	return names
}

// TestPageLoadsAllModulesAtOnce verifies that the page names every module, so that the browser loads them concurrently
// instead of after each other, and no other.
func TestPageLoadsAllModulesAtOnce(t *testing.T) {
	var named []string
	for _, found := range regexp.MustCompile(`(?:modulepreload" href|script type="module" src)="([^"]+)"`).FindAllSubmatch(source(t, "index.html"), -1) {
		named = append(named, string(found[1]))
	}
	all := modules(t)
	slices.Sort(named)
	slices.Sort(all)
	if len(all) < 10 || !slices.Equal(named, all) {
		t.Errorf("index.html names %v, and the modules are %v", named, all)
	}
}

// TestConsoleIsSmall verifies the bound of everything that a browser can load, compressed.
func TestConsoleIsSmall(t *testing.T) {
	total := 0
	err := filepath.WalkDir("ui", func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		r := get(t, http.MethodGet, "/"+filepath.ToSlash(name), "Accept-Encoding", "gzip")
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", name, r.Status)
		}
		total += len(body(t, r))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if total > 100<<10 {
		t.Errorf("the console has %d bytes compressed, more than 100 KiB", total)
	}
}

// TestStyle keeps what the policy or the design forbids out of the console's own files.
func TestStyle(t *testing.T) {
	forbidden := map[string]*regexp.Regexp{
		"markup from strings":      regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|dangerouslySet|document\.write`),
		"code from strings":        regexp.MustCompile(`\beval\(|new Function|setTimeout\("`),
		"storage or cookies":       regexp.MustCompile(`localStorage|sessionStorage|indexedDB|document\.cookie`),
		"another origin":           regexp.MustCompile(`["'(]https?://[a-z]`),
		"inline handlers or style": regexp.MustCompile(`<[a-z]+[^>]* (?:on[a-z]+|style)=`),
	}
	for _, name := range append(modules(t), "index.html", "style.css") {
		if strings.HasPrefix(name, "vendor/") {
			continue
		}
		text := source(t, name)
		for what, pattern := range forbidden {
			if found := pattern.Find(text); found != nil {
				t.Errorf("%s has %s: %q", name, what, found)
			}
		}
		if n := bytes.Count(text, []byte("\n")); n >= 500 {
			t.Errorf("%s has %d lines, 500 or more", name, n)
		}
	}
}
