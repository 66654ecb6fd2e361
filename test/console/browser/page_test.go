package browser_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/test/console/browser"
)

// site serves a page with a script, and a content security policy like the console's.
func site(t *testing.T, script string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'")
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte(`<!doctype html><link rel="icon" href="/icon.svg"><title>t</title><input id="in"><button id="b">go</button><p id="out"></p><script src="/s.js"></script>`))
		case "/s.js":
			w.Header().Set("Content-Type", "text/javascript")
			_, _ = w.Write([]byte(script))
		case "/icon.svg":
			w.Header().Set("Content-Type", "image/svg+xml")
			_, _ = w.Write([]byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// recorder is a testing.TB that records errors.
type recorder struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(args ...any) {
	for _, arg := range args {
		r.errors = append(r.errors, arg.(string))
	}
}

// TestPage uses a page, and takes a picture of it.
func TestPage(t *testing.T) {
	b := browser.Start(t)
	url := site(t, `document.getElementById('b').onclick = () => setTimeout(() => document.getElementById('out').textContent = 'you said ' + document.getElementById('in').value, 50)`)
	p := b.Open(t, url, browser.Look{Width: 375, Height: 667, Dark: true})
	p.Type("#in", "hello")
	p.Click("#b")
	p.AwaitText("you said hello")
	if w := browser.Value[int](p, "innerWidth"); w != 375 {
		t.Errorf("the viewport is %d wide", w)
	}
	if dark := browser.Value[bool](p, "matchMedia('(prefers-color-scheme: dark)').matches"); !dark {
		t.Error("the page is not dark")
	}
	p.Picture(filepath.Join(t.TempDir(), "page.png"))
}

// TestProblemsFailTheTest opens pages with problems. Each must be reported.
func TestProblemsFailTheTest(t *testing.T) {
	b := browser.Start(t)
	for name, c := range map[string]struct{ script, problem string }{
		"logged":    {`console.error('broken thing')`, "broken thing"},
		"thrown":    {`setTimeout(() => { throw new Error('thrown thing') })`, "thrown thing"},
		"rejected":  {`Promise.reject(new Error('rejected thing'))`, "rejected thing"},
		"forbidden": {`document.body.setAttribute('style', 'color: red')`, "style"},
		"missing":   {`fetch('/missing').catch(() => {})`, "connect-src"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{TB: t}
			p := b.Open(r, site(t, c.script+`; setTimeout(() => document.getElementById('out').textContent = 'done', 20)`), browser.Desktop)
			p.AwaitText("done")
			for _, f := range r.cleanups {
				f()
			}
			if !strings.Contains(strings.Join(r.errors, "\n"), c.problem) {
				t.Errorf("reported %q", r.errors)
			}
		})
	}
}

// TestLastProblemFailsTheTest ends the test of a page as soon as the page has a problem.
func TestLastProblemFailsTheTest(t *testing.T) {
	b := browser.Start(t)
	url := site(t, "")
	for range 20 {
		r := &recorder{TB: t}
		p := b.Open(r, url, browser.Desktop)
		browser.Value[bool](p, `console.error('first thing'), console.error('last thing'), true`)
		for _, f := range r.cleanups {
			f()
		}
		if !strings.Contains(strings.Join(r.errors, "\n"), "last thing") {
			t.Fatalf("reported %q", r.errors)
		}
	}
}
