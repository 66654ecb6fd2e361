package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// sessionShowVerb shows what one session holds and waits for.
func sessionShowVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show a session: what it holds and waits for",
		ArgsUsage: "SESSION",
		Description: "SESSION is the number that qlock sessions shows. Only locks that you may read are shown.\n\n" +
			"Exit codes: 0 shown, 66 there is no such session that you may see, 69 no serving leader, 64 usage.",
		Action: func(c *cli.Context) error {
			id, err := sessionID(c, "session show takes one session's number", "qlock session show 4611686018427387921")
			if err != nil {
				return err
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.GetSession(ctx, &wire.GetSessionRequest{SessionId: id})
				if errors.Is(err, client.ErrNotFound) {
					return failf(exitNoSuch, "there is no session %d that you may see; see qlock sessions", id)
				}
				if err != nil {
					return err
				}
				return show(c, one{answer}, func(w io.Writer) { writeSession(w, answer) })
			})
		},
	}
}

// writeSession writes one session for people.
func writeSession(w io.Writer, answer *wire.GetSessionResponse) {
	s := answer.GetSession()
	alive := "heartbeat " + ago(s.HeartbeatAgeMs)
	if s.GetLeased() {
		alive = leaseKind(s)
	}
	fmt.Fprintf(w, "session %d of %s, %s, TTL %s\n", s.GetSessionId(), who(s), alive, ttl(s.GetTtlMs()))
	if addr := s.GetClient().GetAddress(); addr != "" {
		fmt.Fprintf(w, "  from %s\n", printable(addr))
	}
	if text := labels(s.GetClient()); text != "" {
		fmt.Fprintf(w, "  labels %s\n", text)
	}
	writeSessionHolds(w, answer)
	writeSessionWaits(w, answer)
}

func writeSessionHolds(w io.Writer, answer *wire.GetSessionResponse) {
	if answer.GetSession().GetHolds() == 0 {
		fmt.Fprintln(w, "holds nothing")
		return
	}
	t := newTable("HOLDS", "MODE", "TOKEN", "HELD FOR", "TOGETHER WITH")
	for _, h := range answer.GetHolds() {
		t.row(printable(h.GetName()), howHeld(h.GetHold()), fmt.Sprint(h.GetHold().GetToken()),
			millis(h.GetHold().GetHeldForMs()), others(h.GetHold().GetLocks(), h.GetName()))
	}
	writeClaims(w, t, len(answer.GetHolds()), answer.GetSession().GetHolds())
}

func writeSessionWaits(w io.Writer, answer *wire.GetSessionResponse) {
	if answer.GetSession().GetWaits() == 0 {
		fmt.Fprintln(w, "waits for nothing")
		return
	}
	t := newTable("WAITS FOR", "QUEUE", "WAITING", "GIVES UP", "WANTS IT", "TOGETHER WITH")
	for _, q := range answer.GetWaits() {
		t.row(printable(q.GetName()), fmt.Sprint(q.GetWait().GetPosition()), millis(q.GetWait().GetWaitingMs()), waitLeft(q.GetWait()),
			wants(q.GetWait()), others(q.GetWait().GetLocks(), q.GetName()))
	}
	writeClaims(w, t, len(answer.GetWaits()), answer.GetSession().GetWaits())
}

// writeClaims writes a table unless it is empty, and how many claims are not in it.
func writeClaims(w io.Writer, t *table, shown int, all uint64) {
	if shown > 0 {
		t.write(w)
	}
	if more := int64(all) - int64(shown); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}

// others names the locks of a claim besides the one with that name.
func others(locks []string, name string) string {
	return dash(strings.TrimSpace(nameList(without(locks, name))))
}
