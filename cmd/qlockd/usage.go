package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"
)

// The library's errors about flags.
var (
	unknownFlag   = regexp.MustCompile(`^flag provided but not defined: -+(.*)$`)
	missingValue  = regexp.MustCompile(`^flag needs an argument: -+(.*)$`)
	invalidValue  = regexp.MustCompile(`^invalid (?:boolean )?value (".*") for (?:flag )?-+([a-z0-9-]+): `)
	invalidEnvVar = regexp.MustCompile(`^could not parse (".*") as .* value from environment variable "(\w+)" for flag ([a-z0-9-]+): `)
)

// explainUsage rewrites an error of the library: what is wrong, and what to write instead.
func explainUsage(c *cli.Context, err error, _ bool) error {
	text := err.Error()
	if parts := unknownFlag.FindStringSubmatch(text); parts != nil {
		return usage(fmt.Errorf("unknown flag --%s%s; see qlockd --help", parts[1], suggestion(c, "--", parts[1])))
	}
	if parts := missingValue.FindStringSubmatch(text); parts != nil {
		return usage(fmt.Errorf("--%s has no value: give one behind it, see qlockd --help", parts[1]))
	}
	if parts := invalidValue.FindStringSubmatch(text); parts != nil {
		return usage(fmt.Errorf("--%s: %s is no %s", parts[2], parts[1], wantedValue(c, parts[2])))
	}
	if parts := invalidEnvVar.FindStringSubmatch(text); parts != nil {
		return usage(fmt.Errorf("the variable %s: %s is no %s", parts[2], parts[1], wantedValue(c, parts[3])))
	}
	return usage(fmt.Errorf("%w; see qlockd --help", err))
}

// suggestion returns the flag that was probably meant, written with the prefix.
func suggestion(c *cli.Context, prefix, name string) string {
	near := strings.TrimLeft(cli.SuggestFlag(c.App.Flags, name, true), "-")
	if near == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s%s?)", prefix, near)
}

// wantedValue describes the values that a flag takes.
func wantedValue(c *cli.Context, name string) string {
	for _, f := range c.App.Flags {
		if f.Names()[0] != name {
			continue
		}
		switch f.(type) {
		case *cli.DurationFlag:
			return "duration with a unit, such as 500ms or 30s"
		case *cli.BoolFlag:
			return "boolean: give true or false"
		case *cli.UintFlag, *cli.Uint64Flag:
			return "whole number from 0 on"
		case *cli.IntFlag, *cli.Int64Flag:
			return "whole number"
		}
	}
	return "value"
}
