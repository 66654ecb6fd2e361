package main

import (
	"context"
	"errors"
	"os"
	"syscall"

	tea "charm.land/bubbletea/v2"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/quorumlock/quorumlock/cmd/qlock/top"
)

const (
	// onceWidth and onceHeight are the size of a frame that is not for a terminal.
	onceWidth  = 80
	onceHeight = 24
)

// topVerb shows the cluster on a screen that follows its events.
func topVerb(std console, dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "top",
		Usage: "watch the cluster, the locks that are waited for, the sessions and the events on a screen",
		Description: "Arrows or j and k move, Enter opens a lock or a session, Esc goes back, / limits a list to\n" +
			"a prefix, s changes its order, ? lists all keys, q quits. What could not be read again is\n" +
			"grey. With --once, one frame of 80 columns and 24 lines, or of the terminal's size, is\n" +
			"printed without escape sequences; with -o wide it is as large as necessary.\n\n" +
			"Exit codes: 0 after q; 69 no node answers, or with --once no leader; 64 usage.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "once", DisableDefaultText: true, Usage: "print one frame and exit"},
		},
		Action: func(c *cli.Context) error {
			if err := checkTop(c, std); err != nil {
				return err
			}
			return withService(c, dial, func(svc service) error {
				source := topSource{svc}
				if c.Bool("once") {
					return topOnce(c, svc, source, std)
				}
				if err := answers(c, svc, source); err != nil {
					return err
				}
				return topRun(c, source, std)
			})
		},
	}
}

// checkTop refuses command lines for which there is no screen.
func checkTop(c *cli.Context, std console) error {
	screen := term.IsTerminal(int(std.in.Fd())) && term.IsTerminal(int(std.out.Fd())) && os.Getenv("TERM") != "dumb"
	switch output := c.String("output"); {
	case len(arguments(c)) > 0:
		return usagef("top takes no arguments; / limits its list to a prefix")
	case output != "table" && output != "wide":
		return usagef("top has no output for programs; use qlock status, qlock locks or qlock watch with -o %s", output)
	case !c.Bool("once") && !screen:
		return usagef("top needs a terminal; use qlock top --once in scripts")
	}
	return nil
}

// answers returns once any node answers, even without a leader.
func answers(c *cli.Context, svc service, source top.Source) error {
	ctx, cancel := context.WithTimeout(c.Context, timeout(c, defaultTimeout))
	defer cancel()
	ctx, stop := watchEndpoints(ctx, c, svc)
	defer stop()
	_, err := source.Status(ctx, true)
	return withEndpoints(c, err)
}

// topRun shows the screen until the user quits.
func topRun(c *cli.Context, source top.Source, std console) error {
	err := top.Run(c.Context, source, timeout(c, defaultTimeout), top.Terminal{
		In: std.in, Out: std.out, Colours: os.Getenv("NO_COLOR") == "",
	})
	switch {
	case errors.Is(err, tea.ErrInterrupted):
		return signalled(syscall.SIGINT)
	case err != nil:
		return failf(exitInternal, "show the screen: %w", err)
	}
	return nil
}

// topOnce prints one frame.
func topOnce(c *cli.Context, svc service, source top.Source, std console) error {
	ctx, stop := watchEndpoints(c.Context, c, svc)
	defer stop()
	width, height := onceWidth, onceHeight
	if w, h, err := term.GetSize(int(std.out.Fd())); err == nil {
		width, height = w, h
	}
	if c.String("output") == "wide" {
		width, height = 0, 0
	}
	frame, leads, err := top.Once(ctx, source, timeout(c, defaultTimeout), width, height)
	if err != nil {
		return withEndpoints(c, err)
	}
	if err := write(c, []byte(frame)); err != nil {
		return err
	}
	if !leads {
		return failf(exitNoLeader, "no serving leader within %v: bring up a majority of the voters", timeout(c, defaultTimeout))
	}
	return nil
}
