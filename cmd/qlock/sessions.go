package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// sessionsVerb lists live sessions.
func sessionsVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "sessions",
		Usage: "list the live sessions, and what they hold and wait for",
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef("sessions takes no arguments")
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				sessions, err := allSessions(ctx, svc)
				if err != nil {
					return err
				}
				return show(c, list[*wire.SessionInfo]{"sessions", sessions}, func(w io.Writer) {
					writeSessions(w, sessions)
				})
			})
		},
	}
}

// allSessions joins the pages of the list.
func allSessions(ctx context.Context, svc service) ([]*wire.SessionInfo, error) {
	var all []*wire.SessionInfo
	req := &wire.ListSessionsRequest{}
	for {
		page, err := svc.ListSessions(ctx, req)
		if err != nil {
			return nil, err
		}
		all = append(all, page.GetSessions()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return all, nil
		}
	}
}

// writeSessions writes the table for people.
func writeSessions(w io.Writer, sessions []*wire.SessionInfo) {
	if len(sessions) == 0 {
		fmt.Fprintln(w, "no sessions")
		return
	}
	t := newTable("SESSION", "IDENTITY", "HOLDS", "WAITS", "HEARTBEAT", "TTL", "ADDRESS", "OWNER", "LABELS")
	for _, s := range sessions {
		t.row(fmt.Sprint(s.GetSessionId()), dash(printable(s.GetIdentity())), fmt.Sprint(s.GetHolds()), fmt.Sprint(s.GetWaits()),
			sign(s), ttl(s.GetTtlMs()), dash(printable(s.GetClient().GetAddress())),
			owner(s.GetClient(), s.GetSessionId()), labels(s.GetClient()))
	}
	t.write(w)
}

// sign formats the age of a session's last heartbeat. A lease has none, since it is extended instead.
func sign(s *wire.SessionInfo) string {
	if s.GetLeased() {
		return "none: " + leaseKind(s)
	}
	return ago(s.HeartbeatAgeMs)
}
