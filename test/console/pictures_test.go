package console_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/console/browser"
)

// update makes TestPictures write the pictures in docs/console:
//
//	go test . -run '^TestPictures$' -update
var update = flag.Bool("update", false, "write the pictures in docs/console")

// furnish adds what a cluster in use has.
func (s *scene) furnish() {
	for i := range 6 {
		s.wait("orders/42", fmt.Sprint("refund-worker-", i+2))
	}
	stock := s.open("stock-sync")
	for i := range 60 {
		s.lock(stock, fmt.Sprintf("inventory/sku-%05d", 37*i))
	}
	s.lock(stock, "reports/daily")
	for i, name := range []string{"scheduler/leader", "search/indexer"} {
		s.lock(s.open(fmt.Sprint("app-", i+1)), name, client.WithValue(fmt.Appendf(nil, "10.0.0.%d:8080", i+11)))
		s.wait(name, fmt.Sprint("app-", i+3))
	}
	s.ring([]string{"transfer-81", "transfer-82", "transfer-83"}, []string{"accounts/A", "accounts/B", "accounts/C"})
	s.wait("accounts/B", "auditor")
	s.wait("accounts/B", "statement")
	payout := s.open("payout")
	s.waitAll(payout, s.lock(payout, "payouts/17"), "accounts/A")
	for i := range 3 {
		s.wait("reports/daily", fmt.Sprint("report-", i+1))
	}
}

// TestPictures takes the pictures of the documentation.
func TestPictures(t *testing.T) {
	if !*update {
		t.Skip("with -update only")
	}
	b, s := browser.Start(t), stage(t)
	s.furnish()
	p := b.Open(t, s.page("n1", "/"), browser.Desktop)
	dir := filepath.Join("..", "..", "docs", "console")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	narrow := browser.Look{Width: 375, Height: 800}
	dark := browser.Look{Width: 1280, Height: 800, Dark: true}
	for _, picture := range []struct {
		file, path, shows string
		look              browser.Look
		act               string // whose dialog is open
	}{
		{"overview.png", "/", "reports/daily", browser.Desktop, ""},
		{"lock.png", lockPage("orders/42"), "8 requests wait", browser.Desktop, ""},
		{"lock-dark.png", lockPage("orders/42"), "8 requests wait", dark, ""},
		{"waits.png", waitsPage("lock", "accounts/A"), "Three sessions wait", browser.Desktop, ""},
		{"locks-narrow.png", "/locks", "inventory/sku-00037", narrow, ""},
		{"force-release.png", lockPage("orders/42"), "8 requests wait", browser.Desktop, "FORCE_RELEASE"},
	} {
		p.Show(picture.look)
		p.Visit(s.page("n1", picture.path))
		p.AwaitText(picture.shows)
		p.Await(complete)
		if picture.act != "" {
			begin(p, picture.act)
			p.Type("#act-reason", "the host of refunds is on fire")
			p.Type("#act-ticket", "OPS-1207")
			p.Type("#act-typed", "orders/4")
		}
		p.Picture(filepath.Join(dir, picture.file))
	}
}
