package top

import (
	"fmt"
	"html"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/cmd/qlock/golden"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	column, line, margin = 9, 20, 16 // in pixels
	sceneTime            = 4 * time.Second
)

// looks are the styles of the recording, in CSS.
var looks = map[style]string{
	bold: "font-weight:bold", faint: "fill:#8b949e", reversed: "fill:#0d1117",
	good: "fill:#3fb950", warning: "fill:#d29922", urgent: "fill:#ff7b72;font-weight:bold",
}

// recording is an SVG that shows frames one after the other, again and again.
func recording(frames []frame) string {
	width, height := 80*column+2*margin, 24*line+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" role="img" aria-label="qlock top">`+"\n", width, height, width)
	share := 100 / float64(len(frames))
	fmt.Fprintf(&b, "<style>text{font:15px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e6edf3;white-space:pre}"+
		".f{visibility:hidden;animation:f %gs step-end infinite}.f:first-of-type{visibility:visible}"+
		"@media(prefers-reduced-motion:reduce){.f{animation:none}}"+
		"@keyframes f{0%%{visibility:visible}%.3f%%{visibility:hidden}}</style>\n", sceneTime.Seconds()*float64(len(frames)), share)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="10" fill="#0d1117"/>`+"\n", width, height)
	for i, f := range frames {
		fmt.Fprintf(&b, `<g class="f" style="animation-delay:%gs">`+"\n", sceneTime.Seconds()*float64(i))
		for row, l := range f {
			drawLine(&b, l, margin+row*line)
		}
		b.WriteString("</g>\n")
	}
	return b.String() + "</svg>\n"
}

// drawLine draws the parts of a line, each as wide as its columns, whatever the font is.
func drawLine(b *strings.Builder, l []part, y int) {
	x := margin
	for _, p := range l {
		width := textWidth(p.text) * column
		if p.style == reversed {
			fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="#e6edf3"/>`+"\n", x, y, width, line)
		}
		if text := strings.TrimRight(p.text, " "); text != "" {
			look := looks[p.style]
			if look != "" {
				look = fmt.Sprintf(` style="%s"`, look)
			}
			fmt.Fprintf(b, `<text x="%d" y="%d" textLength="%d" xml:space="preserve"%s>%s</text>`+"\n",
				x, y+15, textWidth(text)*column, look, html.EscapeString(text))
		}
		x += width
	}
}

// recorded is the cluster of the recording.
func recorded() *fakeSource {
	f := example()
	for i := range f.samples.Grants {
		f.samples.Grants[i] = uint64(600 + 30*max(30-i%60, i%60-30) + 4*(i*i%97))
	}
	people := []struct{ identity, host, name string }{{"billing", "web1", "refund"}, {"billing", "web2", "refund"}, {"reports", "cron-1", "daily"}, {"ml", "gpu-7", "train"}, {"ci", "build-3", "deploy"}}
	owner := func(i int) (string, *wire.ClientInfo) {
		p := people[i%len(people)]
		return p.identity, &wire.ClientInfo{HostName: p.host, Pid: int32(4_000 + 37*i), Name: p.name, Address: fmt.Sprintf("10.0.0.%d:51234", 7+i)}
	}
	var queue []*wire.WaiterInfo
	for i := range 12 {
		w := waiting(uint64(101+i), uint64(i+1), time.Duration(72-5*i)*time.Second)
		w.Identity, w.Client = owner(i % 2)
		w.HeartbeatAgeMs = proto.Uint64(uint64(300 + 170*i))
		queue = append(queue, w)
	}
	f.contended = nil
	for i, name := range []string{"orders/42", "gpu/pool", "deploy/eu", "reports/daily"} {
		h := holding(uint64(90+i), time.Duration(185-40*i)*time.Second)
		h.Identity, h.Client = owner([]int{0, 3, 4, 2}[i])
		h.Token, h.RemainingHoldMs, h.Value, h.HeartbeatAgeMs = uint64(70_411+i), nil, nil, proto.Uint64(uint64(700+400*i))
		f.contended = append(f.contended, contendedLock(name, uint64(12-3*i), 1, h, waiting(7, 1, time.Duration(72-11*i)*time.Second)))
	}
	f.contended[1].HolderCount = 4
	f.locks["orders/42"] = &wire.GetLockResponse{Name: "orders/42", Holders: []*wire.HolderInfo{f.contended[0].Holder}, HolderCount: 1, Queue: queue, QueueLength: 12}
	return f
}

// scenes are the frames of the recording: the locks, a lock whose holder changes, a leader change, the events.
func scenes(t *testing.T) []frame {
	f := recorded()
	s := newScreen(t, f, 80, 24)
	frames := []frame{s.m.frame()}
	s.press("enter")
	s.clock = s.clock.Add(sceneTime)
	s.pass(0)
	frames = append(frames, s.m.frame())

	lock := f.locks["orders/42"]
	first, rest := lock.GetQueue()[0], lock.GetQueue()[1:]
	next := proto.CloneOf(lock.GetHolders()[0])
	next.HoldId, next.SessionId, next.Client, next.Token, next.HeldForMs = first.GetWaitId(), first.GetSessionId(), first.GetClient(), 70_415, 0
	for _, w := range rest {
		w.Position--
		w.WaitingMs += millis(2 * sceneTime)
	}
	f.locks["orders/42"] = &wire.GetLockResponse{Name: "orders/42", Holders: []*wire.HolderInfo{next}, HolderCount: 1, Queue: rest, QueueLength: 11}
	s.clock = s.clock.Add(sceneTime)
	s.happen(&wire.Event{Type: wire.Event_RELEASED, Revision: 811, Lock: "orders/42", SessionId: 90, Token: 70_411, HoldId: 90},
		&wire.Event{Type: wire.Event_GRANTED, Revision: 811, Lock: "orders/42", SessionId: first.GetSessionId(), Token: 70_415, HoldId: first.GetWaitId(), Waited: true})
	s.pass(0)
	frames = append(frames, s.m.frame())

	f.status = &wire.StatusResponse{ClusterId: f.status.GetClusterId(), LeaderId: "n3", Term: 8, Locks: 1_204, Sessions: 87, Holds: 1_190, Waiters: 39,
		Nodes: []*wire.NodeStatus{node("n1", false), {Id: "n2", Voter: true}, node("n3", true)}}
	s.pass(sceneTime)
	frames = append(frames, s.m.frame())
	s.press("3")
	return append(frames, s.m.frame())
}

// TestRecording compares the recording in the documents with one of today's screen. Look at it after -rewrite.
func TestRecording(t *testing.T) {
	golden.CompareFile(t, "../../../docs/top.svg", recording(scenes(t)))
}
