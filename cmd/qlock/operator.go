package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/words"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// reasonFlags set who intervenes, why and for which ticket. The audit log records all of them.
func reasonFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "reason", DefaultText: "required", Usage: "`TEXT` for the audit log and for the affected holder"},
		&cli.StringFlag{Name: "operator", DefaultText: "user@host", Usage: "`NAME` for the audit log"},
		&cli.StringFlag{Name: "ticket", Usage: "`ID` of a ticket or an incident, for the audit log"},
	}
}

// namedHoldFlags select one hold.
func namedHoldFlags() []cli.Flag {
	return []cli.Flag{
		&cli.Uint64Flag{Name: "token", DefaultText: "required", Usage: "`TOKEN` of the hold, as shown by qlock show"},
		&cli.Uint64Flag{Name: "hold", DefaultText: "that of the token", Usage: "`ID` of the hold, if the lock has more holders than are shown"},
	}
}

// claims are the values of reasonFlags.
type claims struct{ Reason, Operator, Ticket string }

// reasonOf returns the values of reasonFlags.
func reasonOf(c *cli.Context) (claims, error) {
	by := claims{Reason: c.String("reason"), Operator: cmp.Or(c.String("operator"), whoAmI()), Ticket: c.String("ticket")}
	if strings.TrimSpace(by.Reason) == "" {
		return by, usagef("%s needs --reason, as in --reason \"host is on fire\": the audit log keeps it", c.Command.Name)
	}
	if err := cmp.Or(checkText("the reason", by.Reason), checkText("the operator", by.Operator), checkText("the ticket", by.Ticket)); err != nil {
		return by, err
	}
	if err := wire.ValidReason(&wire.AuditRecord{Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket}); err != nil {
		return by, usagef("%w", err)
	}
	return by, nil
}

// whoAmI returns the user at this host, as far as known.
func whoAmI() string {
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return wire.CleanText(name, wire.MaxOperatorBytes)
}

// target is the hold that an operator selected.
type target struct {
	name   string
	token  uint64
	holdID uint64
	holder *wire.HolderInfo      // nil if it is not among those listed
	lock   *wire.GetLockResponse // before the change
}

// targetOf returns the hold selected by NAME and --token.
func targetOf(ctx context.Context, c *cli.Context, svc service) (target, error) {
	t := target{name: arguments(c)[0], token: c.Uint64("token"), holdID: c.Uint64("hold")}
	var err error
	t.lock, err = svc.GetLock(ctx, &wire.GetLockRequest{Name: t.name})
	if errors.Is(err, client.ErrNotFound) {
		return t, failf(exitNotHeld, "nobody holds %s", printable(t.name))
	}
	if err != nil {
		return t, err
	}
	for _, h := range t.lock.GetHolders() {
		if hasToken(h, t.token) && (t.holdID == 0 || t.holdID == h.GetHoldId()) {
			t.holder, t.holdID = h, h.GetHoldId()
			return t, nil
		}
	}
	if t.holdID != 0 && t.lock.GetHolderCount() > uint64(len(t.lock.GetHolders())) {
		return t, nil // the cluster decides
	}
	return t, failf(exitNotHeld, "%s", t.notThat())
}

// hasToken reports whether a token is one of the holder's, which has several if its hold is cached.
func hasToken(h *wire.HolderInfo, token uint64) bool {
	return token >= h.GetToken() && token-h.GetToken() < uint64(max(1, h.GetTokens()))
}

// notThat describes who holds the lock instead of the given token.
func (t target) notThat() string {
	holders := t.lock.GetHolders()
	text := fmt.Sprintf("token %d does not hold %s", t.token, printable(t.name))
	switch {
	case len(holders) == 0:
		return text + "; nobody does"
	case t.lock.GetHolderCount() > uint64(len(holders)):
		return text + " as far as is shown; give its --hold too"
	case len(holders) == 1:
		return fmt.Sprintf("%s; %s does, with %s", text, who(holders[0]), tokensOf(holders[0]))
	}
	return text + "; see qlock show"
}

// tokensOf describes the tokens of a hold.
func tokensOf(h *wire.HolderInfo) string {
	if h.GetTokens() > 0 {
		return "tokens " + words.Tokens(h.GetToken(), h.GetTokens())
	}
	return fmt.Sprintf("token %d", h.GetToken())
}

// who describes the holder for people.
func (t target) who() string {
	if t.holder == nil {
		return fmt.Sprintf("hold %d", t.holdID)
	}
	return who(t.holder)
}

// checkTarget refuses a command line that does not select a hold.
func checkTarget(c *cli.Context, example string) error {
	if len(arguments(c)) != 1 {
		return usagef("%s takes one lock's name, as in %s", c.Command.Name, example)
	}
	if c.Uint64("token") == 0 {
		return usagef("%s needs --token, the hold's as qlock show prints it, so that it cannot hit a later hold", c.Command.Name)
	}
	return checkName(arguments(c)[0])
}

// notHeld explains the error of a request that came after the end of the hold.
func (t target) notHeld(err error) error {
	if errors.Is(err, client.ErrNotHeld) {
		return failf(exitNotHeld, "token %d does not hold %s any more", t.token, printable(t.name))
	}
	return err
}
