package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

const (
	// pageTimeout bounds each wait for a page.
	pageTimeout = 20 * time.Second
	// pollInterval is the time between two evaluations of a condition.
	pollInterval = 5 * time.Millisecond
)

// Look is how a page is shown.
type Look struct {
	// Width and Height are the viewport's, in CSS pixels.
	Width, Height int64
	Dark          bool
}

// Desktop is a common look.
var Desktop = Look{Width: 1280, Height: 800}

// Page is a tab. Its methods fail the test instead of returning an error, so they must be called from the test's own
// goroutine.
type Page struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string // guarded by mu
	expected func(problem string) bool
}

// observe tells a page of violations of its content security policy, which Chromium reports to the page only.
const observe = `document.addEventListener('securitypolicyviolation', e => console.error('CSP: ' + e.violatedDirective + ' ' + e.blockedURI))`

// lastMessage ends the collection of a page's messages, which keep their order.
const lastMessage = "the test of this page ends"

// Open opens a page in a tab without the cookies and storage of others. It is closed at the end of the test, which fails
// if the page had problems.
func (b *Browser) Open(t testing.TB, url string, look Look) *Page {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	p := &Page{t: t, ctx: ctx, expected: func(string) bool { return false }}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal("open a tab: ", err)
	}
	collected := make(chan struct{})
	messages := chromedp.Console(ctx)
	go func() {
		defer close(collected)
		for m, err := range messages {
			if err != nil || m.Type == chromedp.ConsoleDebug && m.Text == lastMessage {
				return
			}
			p.note(m)
		}
	}()
	t.Cleanup(func() {
		p.drain(collected)
		cancel()
		<-collected
		for _, problem := range p.Problems() {
			t.Error("the browser's console: ", problem)
		}
	})
	p.run("set up the tab", call(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: observe}))
	p.Show(look)
	p.Visit(url)
	return p
}

// drain waits until the messages that the page has written are collected: the end of the context drops those that are
// still on their way. It gives up if the page does not answer.
func (p *Page) drain(collected <-chan struct{}) {
	ctx, cancel := context.WithTimeout(p.ctx, pageTimeout)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("console.debug('"+lastMessage+"'), true")); err != nil {
		return
	}
	select {
	case <-collected:
	case <-ctx.Done():
	}
}

// call returns an action that calls a method of the protocol and drops its result.
func call[P, R any](method cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, method, params)
		return chromedp.Void{}, err
	}
}

func (p *Page) note(m chromedp.ConsoleMessage) {
	if m.Type != chromedp.ConsoleError && !m.IsException() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, m.String()+" "+m.URL)
}

// Expect declares problems that the test causes on purpose, such as requests that fail while a node is down.
func (p *Page) Expect(expected func(problem string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = expected
}

// Problems returns the problems so far, without the expected ones.
func (p *Page) Problems() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		if !p.expected(problem) {
			all = append(all, problem)
		}
	}
	return all
}

// run runs an action within pageTimeout.
func (p *Page) run(what string, action chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, pageTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, action); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// Show changes the look.
func (p *Page) Show(look Look) {
	p.t.Helper()
	p.run("set the viewport", chromedp.EmulateViewport(look.Width, look.Height))
	scheme := "light"
	if look.Dark {
		scheme = "dark"
	}
	p.run("set the colour scheme", call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}))
}

// Visit navigates to an address.
func (p *Page) Visit(url string) {
	p.t.Helper()
	p.run("visit "+url, chromedp.Navigate(url))
}

// Click clicks the first element that matches a CSS selector, as soon as it is visible.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.run("click "+selector, chromedp.Click(chromedp.CSS(selector)))
}

// Type types text into the first element that matches a CSS selector.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	p.run("type into "+selector, chromedp.SendKeys(chromedp.CSS(selector), text))
}

// Press presses keys, wherever the focus is.
func (p *Page) Press(keys string) {
	p.t.Helper()
	p.run("press keys", chromedp.KeyEvent(keys))
}

// Await waits until a JavaScript expression is true.
func (p *Page) Await(condition string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, pageTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		holds, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+condition+")"))
		if err == nil && holds {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.t.Fatalf("not within %v: %s (%v); the page shows:\n%s\nproblems: %q", pageTimeout, condition, err, p.shown(), p.Problems())
		}
	}
}

// shown returns the text of the page, for the message of a failed test.
func (p *Page) shown() string {
	ctx, cancel := context.WithTimeout(p.ctx, pageTimeout)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// AwaitText waits until the page shows a text.
func (p *Page) AwaitText(text string) {
	p.t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Await(fmt.Sprintf("document.body.innerText.includes(%s)", quoted))
}

// Value evaluates a JavaScript expression, or a promise of its value.
func Value[T any](p *Page, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, pageTimeout)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// Picture writes what the viewport shows to a PNG file.
func (p *Page) Picture(path string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, pageTimeout)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(path, png, 0o644)
	}
	if err != nil {
		p.t.Fatalf("picture %s: %v", path, err)
	}
}
