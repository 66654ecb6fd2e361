package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/server/httpapi/callers"
)

// visit sends a request for a page, as a browser does.
func visit(st *stage, method, path string) reply {
	return st.ask("", "", func(r *http.Request) {
		r.Method, r.URL.Path = method, path
		r.Header.Del("Content-Type")
	}).reply()
}

// TestConsoleIsOpen verifies that the console's files need no credential, even if every request with data does.
func TestConsoleIsOpen(t *testing.T) {
	play(t, func(st *stage) {
		st.s.callers = callers.New(callers.Config{Source: st.node, Require: true})
		for path, want := range map[string]int{
			"/": http.StatusFound, "/ui": http.StatusFound, "/ui/": http.StatusOK, "/ui/main.js": http.StatusOK, "/ui/nothing": http.StatusNotFound,
		} {
			got := visit(st, http.MethodGet, path)
			if got.status != want || !strings.Contains(got.header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
				t.Errorf("%s: %d %v", path, got.status, got.header)
			}
		}
		if got := visit(st, http.MethodPost, "/ui/"); got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != http.MethodGet {
			t.Errorf("POST: %d %v", got.status, got.header)
		}
		st.none()
	})
}

func TestConsoleIsOffWithNoConsole(t *testing.T) {
	play(t, func(st *stage) {
		for _, path := range []string{"/", "/ui", "/ui/", "/ui/main.js"} {
			if got := visit(st, http.MethodGet, path); got.status != http.StatusNotFound || got.fields()["code"] != "unimplemented" {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
	}, func(cfg *Config) { cfg.NoConsole = true })
}

// TestPagesOfOtherOriginsAreRefused verifies that no page but the console can send requests with a visitor's
// certificate. Browsers set these headers, and pages cannot.
func TestPagesOfOtherOriginsAreRefused(t *testing.T) {
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		body := p.full(st.open("ann"))
		for _, header := range []http.Header{
			{"Sec-Fetch-Site": {"cross-site"}}, {"Sec-Fetch-Site": {"same-site"}}, {"Origin": {"https://evil.example"}}, {"Origin": {"null"}},
		} {
			got := st.ask(procedure, body, func(r *http.Request) {
				for name, values := range header {
					r.Header[name] = values
				}
			}).reply()
			if got.status != http.StatusForbidden || got.fields()["code"] != "permission_denied" {
				t.Errorf("%v: %d %s", header, got.status, got.body)
			}
		}
		st.none()
	})
}

// TestTheConsolesOwnRequestsAreServed verifies that requests of the same origin, and those of other programs, pass.
func TestTheConsolesOwnRequestsAreServed(t *testing.T) {
	play(t, func(st *stage) {
		for _, header := range []http.Header{
			{}, {"Sec-Fetch-Site": {"same-origin"}, "Origin": {"http://n1"}}, {"Sec-Fetch-Site": {"none"}}, {"Origin": {"http://n1"}},
		} {
			got := st.ask("ClusterService/Status", `{"nosuchfield":1}`, func(r *http.Request) {
				r.Host = "n1"
				for name, values := range header {
					r.Header[name] = values
				}
			}).reply()
			if got.status != http.StatusBadRequest {
				t.Errorf("%v: %d %s", header, got.status, got.body)
			}
		}
	})
}
