package main

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// sessionFlags describe the holder of the lock.
func sessionFlags(standard string) []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "label", Usage: "`KEY=VALUE` shown with the holder; may be repeated"},
		&cli.StringFlag{Name: "session-name", DefaultText: standard, Usage: "`NAME` shown with the holder"},
	}
}

// sessionOptionsOf returns the description of the holder from the command line.
func sessionOptionsOf(c *cli.Context, name string) (client.SessionOptions, error) {
	labels, err := parseLabels(c.StringSlice("label"))
	if err != nil {
		return client.SessionOptions{}, err
	}
	name = wire.CleanText(name, maxChosen)
	if given := c.String("session-name"); given != "" {
		name = given
	}
	return client.SessionOptions{TTL: c.Duration("ttl"), Name: name, Labels: labels}, checkText("the session's name", name)
}

// parseLabels parses KEY=VALUE pairs.
func parseLabels(pairs []string) (map[string]string, error) {
	labels := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, usagef("--label %q is not KEY=VALUE", pair)
		}
		if err := checkText("--label", pair); err != nil {
			return nil, err
		}
		if _, twice := labels[key]; twice {
			return nil, usagef("--label %s is given twice", printable(key))
		}
		labels[key] = value
	}
	return labels, nil
}
