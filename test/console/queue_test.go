package console_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/admin"
	"github.com/quorumlock/quorumlock/test/console/browser"
	"github.com/quorumlock/quorumlock/test/process"
)

// popular is the lock that many wait for.
const popular = "popular"

// gather lets so many requests wait for a lock that a long job holds.
func (s *scene) gather(waiters int) {
	s.t.Helper()
	s.session = s.open("long job")
	s.held = s.lock(s.session, popular)
	const bySession = 500
	for n := 0; n < waiters; n += bySession {
		session := s.open(fmt.Sprint("waiter-", n/bySession))
		for range min(bySession, waiters-n) {
			go func() { _, _ = session.Lock(s.t.Context(), popular) }()
		}
	}
	s.cluster.Await("a long queue", 2*process.WaitTimeout, func(ctx context.Context) error {
		lock, err := admin.New(s.client).Lock(ctx, popular)
		if err == nil && lock.QueueLength != uint64(waiters) {
			err = fmt.Errorf("%d requests wait", lock.QueueLength)
		}
		return err
	})
}

// showMore presses the button that shows more of the queue, and waits for the answer.
func showMore(p *browser.Page, more string) {
	button := fmt.Sprintf(`[...document.querySelectorAll("button")].find(b => b.textContent === "Show %s")`, more)
	p.Await(button)
	rows := browser.Value[float64](p, `document.querySelector(".table:has([aria-rowindex])").scrollHeight`)
	browser.Value[bool](p, button+".click(), true")
	p.Await(fmt.Sprintf(`document.querySelector(".table:has([aria-rowindex])").scrollHeight > %v`, rows))
}

// inSight are the rows of the queue that a person sees: their positions, as text and for screen readers. It fails on what
// is not a row where one should be.
const inSight = `(() => {
	const table = document.querySelector(".table:has([aria-rowindex])").getBoundingClientRect();
	const rows = [];
	for (let y = Math.max(60, table.top + 40); y < Math.min(innerHeight, table.bottom) - 5; y += 40) {
		const row = document.elementFromPoint(table.left + 30, y)?.closest("tr[data-row]");
		rows.push(row ? [Number(row.cells[0].textContent.replace(",", "")), Number(row.ariaRowIndex ?? row.getAttribute("aria-rowindex")) - 1] : [0, 0]);
	}
	return rows;
})()`

// bottom reports whether the page is scrolled to its end, and scrollOn scrolls it by half a screen.
const (
	bottom   = `scrollY + innerHeight >= document.documentElement.scrollHeight - 1`
	scrollOn = `window.scrollBy({top: innerHeight / 2, behavior: "instant"}), true`
)

// TestLongQueue scrolls through a queue of which only a part is drawn, with the wheel and with the keyboard. Every request
// must be reached, at its place.
func TestLongQueue(t *testing.T) {
	inFull(t)
	const waiters = 1_000
	b := browser.Start(t)
	c := process.Start(t, programs, 3)
	s := &scene{t: t, cluster: c, client: c.Client()}
	s.gather(waiters)
	p := b.Open(t, s.page("n1", lockPage(popular)), browser.Desktop)
	showMore(p, "1,000")
	if drawn := browser.Value[int](p, `document.querySelectorAll("tr[data-row]").length`); drawn > 200 {
		t.Errorf("%d rows are drawn", drawn)
	}
	seen := map[int]bool{}
	for last := false; !last; {
		last = browser.Value[bool](p, bottom)
		p.Await(inSight + `.every(([position]) => position > 0)`)
		for _, row := range browser.Value[[][2]int](p, inSight) {
			if seen[row[0]] = true; row[0] != row[1] {
				t.Fatalf("the row of request %d says that it is no. %d", row[0], row[1])
			}
		}
		browser.Value[bool](p, scrollOn)
	}
	for position := 1; position <= waiters; position++ {
		if !seen[position] {
			t.Fatalf("request %d was never in sight", position)
		}
	}
	s.walk(p)
}

// TestElectionsAmongOthers lists elections that are among more locks than one request examines.
func TestElectionsAmongOthers(t *testing.T) {
	inFull(t)
	const others, together, leaders = 12_000, 60, 101
	b := browser.Start(t)
	c := process.Start(t, programs, 3)
	s := &scene{t: t, cluster: c, client: c.Client()}
	for n := 0; n < others; n += together {
		names := make([]string, together)
		for i := range names {
			names[i] = fmt.Sprintf("job/%05d", n+i)
		}
		if n%600 == 0 {
			s.session = s.open(fmt.Sprint("others-", n))
		}
		if _, err := s.session.LockAll(t.Context(), client.Names(names...)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range leaders {
		s.lock(s.session, fmt.Sprintf("leader/%03d", i), client.WithValue([]byte("10.0.0.7:80")))
	}
	p := b.Open(t, s.page("n1", "/elections"), browser.Desktop)
	p.AwaitText("leader/099")
	p.AwaitText("page 1 · 100 elections")
	if browser.Value[bool](p, `/job.|leader.100/.test(document.body.innerText)`) {
		t.Error("more than the first page is shown")
	}
	browser.Value[bool](p, `[...document.querySelectorAll(".pager button")].at(-1).click(), true`)
	p.AwaitText("leader/100")
	p.AwaitText("page 2 · 1 election")
}

// walk goes down the queue row by row with a key, for longer than what is drawn at first.
func (s *scene) walk(p *browser.Page) {
	browser.Value[bool](p, `window.scrollTo({top: 0, behavior: "instant"}), true`)
	p.Await(`document.querySelector("[aria-rowindex='2']")`)
	const rows = 250
	focused := `document.activeElement.closest("tr[data-row]")`
	at := func() int { return browser.Value[int](p, `Number(`+focused+`?.getAttribute("aria-rowindex") ?? 1)`) }
	step := func(key string, by int) {
		before := at()
		p.Press(key)
		if now := at(); now != before && now != before+by {
			s.t.Fatalf("%s goes from row %d to %d", key, before, now)
		}
	}
	for presses := 0; at() < rows+1; presses++ { // at the last row that is drawn, a key waits for the next ones
		if presses > 2*rows {
			s.t.Fatalf("row %d is the last that is reached", at())
		}
		step("j", 1)
	}
	p.Await(fmt.Sprintf(`(({top, bottom}) => top >= 0 && bottom <= innerHeight)(%s.getBoundingClientRect())`, focused))
	for range 5 {
		step("k", -1)
	}
	if now := at(); now != rows+1-5 {
		s.t.Errorf("five rows up from row %d is row %d", rows+1, now)
	}
}
