package console_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/console/browser"
)

// update makes TestPictures write the pictures in docs/console, for which a cluster is used for some minutes:
//
//	go test . -run '^TestPictures$' -update
//
// looks is a directory for pictures of more pages at three widths, light and dark, to look at.
var (
	update = flag.Bool("update", false, "write the pictures in docs/console")
	looks  = flag.String("looks", "", "a directory for pictures of many pages")
)

// usedFor is how long a cluster is used before its picture is taken: the overview shows ten minutes.
const usedFor = 6 * time.Minute

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

// use lets workers come and go, hold locks and wait for one another, more at some times than at others.
func (s *scene) use(ctx context.Context) {
	var busy sync.WaitGroup
	defer busy.Wait()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for second := 0; ctx.Err() == nil; second++ {
		at := float64(second)
		for i := range int(4 + 3*math.Sin(at/40) + 2*math.Sin(at/11)) {
			busy.Go(func() {
				s.work(ctx, fmt.Sprint("orders/", 100+(second*7+i)%23), time.Duration(1+(second+i)%9)*time.Second)
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// work is one worker that holds a lock for a while.
func (s *scene) work(ctx context.Context, name string, during time.Duration) {
	session, err := s.client.NewSession(ctx, client.SessionOptions{Name: "refund-worker"})
	if err != nil {
		return
	}
	defer func() { _ = session.Close(context.WithoutCancel(ctx)) }()
	if hold, err := session.Lock(ctx, name, client.WithWait(20*time.Second)); err == nil {
		select {
		case <-time.After(during):
		case <-ctx.Done():
		}
		_ = hold.Unlock(context.WithoutCancel(ctx))
	}
}

// TestPictures takes the pictures of the documentation.
func TestPictures(t *testing.T) {
	if !*update && *looks == "" {
		t.Skip("with -update or -looks only")
	}
	b, s := browser.Start(t), stage(t)
	s.furnish()
	ctx, cancel := context.WithCancel(t.Context())
	var using sync.WaitGroup
	using.Go(func() { s.use(ctx) })
	defer using.Wait()
	defer cancel()
	s.cluster.Pass(usedFor)
	p := b.Open(t, s.page("n1", "/"), browser.Desktop)
	if *update {
		s.illustrate(p)
	}
	if *looks != "" {
		s.look(p)
	}
}

// illustrate takes the pictures in docs/console.
func (s *scene) illustrate(p *browser.Page) {
	dir := filepath.Join("..", "..", "docs", "console")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	narrow := browser.Look{Width: 375, Height: 800}
	dark := browser.Look{Width: 1280, Height: 800, Dark: true}
	for _, picture := range []struct {
		file, path, shows string
		look              browser.Look
		act               string // whose dialog is open
	}{
		{"overview.png", "/", "orders/42", browser.Desktop, ""},
		{"lock.png", lockPage("orders/42"), "8 requests wait", browser.Desktop, ""},
		{"lock-dark.png", lockPage("orders/42"), "8 requests wait", dark, ""},
		{"waits.png", waitsPage("lock", "accounts/A"), "Three sessions wait", browser.Desktop, ""},
		{"locks-narrow.png", "/locks", "inventory/sku-00037", narrow, ""},
		{"force-release.png", lockPage("orders/42"), "8 requests wait", browser.Desktop, "FORCE_RELEASE"},
	} {
		s.show(p, picture.path, picture.shows, picture.look)
		if picture.act != "" {
			begin(p, picture.act)
			p.Type("#act-reason", "the host of refunds is on fire")
			p.Type("#act-ticket", "OPS-1207")
			p.Type("#act-typed", "orders/4")
		}
		p.Picture(filepath.Join(dir, picture.file))
	}
}

// look takes pictures of more pages.
func (s *scene) look(p *browser.Page) {
	pages := map[string]string{
		"overview": "/", "lock": lockPage("orders/42"), "locks": "/locks", "queues": "/locks?order=QUEUE_LENGTH",
		"sessions": "/sessions", "live": "/live", "elections": "/elections",
	}
	for name, path := range pages {
		for _, width := range []int64{1440, 1024, 375} {
			for scheme, dark := range map[string]bool{"light": false, "dark": true} {
				file := filepath.Join(*looks, fmt.Sprintf("%s-%d-%s.png", name, width, scheme))
				s.show(p, path, "Live", browser.Look{Width: width, Height: 900, Dark: dark})
				p.Picture(file)
			}
		}
	}
}

// show shows a page, and waits until it shows a text.
func (s *scene) show(p *browser.Page, path, shows string, look browser.Look) {
	p.Show(look)
	p.Visit("about:blank")
	p.Visit(s.page("n1", path))
	p.AwaitText(shows)
	p.Await(`document.querySelector("h1") && !document.querySelector("[aria-busy=true]")`)
	if path == "/" {
		p.Await(`document.querySelectorAll(".tile svg").length === 4`)
	}
	if path == "/live" {
		p.Await(`document.querySelectorAll("tbody tr").length > 12`)
	}
}
