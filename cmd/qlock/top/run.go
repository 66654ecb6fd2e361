package top

import (
	"context"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
)

// Terminal is where the screen is shown.
type Terminal struct {
	In, Out *os.File
	Colours bool
}

// Run shows the screen until the user quits. A read that takes longer than timeout fails.
func Run(ctx context.Context, source Source, timeout time.Duration, t Terminal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := New(ctx, source, timeout)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		m.feed.run(ctx, source)
	}()
	profile := colorprofile.ANSI
	if !t.Colours {
		profile = colorprofile.ASCII
	}
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(t.In), tea.WithOutput(t.Out), tea.WithColorProfile(profile)).Run()
	cancel()
	<-watched
	return err
}

// Once returns one frame without escape sequences, as wide as the screen. Width 0 is as wide as necessary, and
// height 0 as high. leads reports whether the leader has answered. If nobody has, there is no frame.
func Once(ctx context.Context, source Source, timeout time.Duration, width, height int) (frame string, leads bool, err error) {
	m := New(ctx, source, timeout)
	m.width, m.height = width, height
	for _, r := range []struct {
		read *read
		load load
	}{{&m.overview.read, m.loadOverview}, {&m.shown().state().read, m.shown().load()}} {
		m.answer(m.start(r.read, r.load)().(answerMsg))
		if r.read.err != nil && !m.overview.leaderless {
			return "", false, r.read.err
		}
	}
	return m.snapshot().plain(), !m.overview.leaderless, nil
}
