package main

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// mostSmallBytes is the maximum of sizes stored in 32 bits.
const mostSmallBytes = 64 << 10

func envName(flag string) string {
	return "QLOCKD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func ttl(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }

// flag returns the setting as a command-line flag. The type of the field determines the type of the flag.
func (s setting) flag(category string) cli.Flag {
	name, usage, env := s.name, s.usage, []string{envName(s.name)}
	switch field := s.field.(type) {
	case *bool:
		return &cli.BoolFlag{Name: name, Usage: usage, Category: category, EnvVars: env, DisableDefaultText: true}
	case *time.Duration:
		return &cli.DurationFlag{Name: name, Value: *field, Usage: usage, Category: category, EnvVars: env}
	case milliseconds:
		return &cli.DurationFlag{Name: name, Value: ttl(*field.field), Usage: usage, Category: category, EnvVars: env}
	case *int:
		return &cli.IntFlag{Name: name, Value: *field, Usage: usage, Category: category, EnvVars: env}
	case *int64:
		return &cli.Int64Flag{Name: name, Value: *field, Usage: usage, Category: category, EnvVars: env}
	case *uint64:
		return &cli.Uint64Flag{Name: name, Value: *field, Usage: usage, Category: category, EnvVars: env}
	case *uint32:
		return &cli.UintFlag{Name: name, Value: uint(*field), Usage: usage, Category: category, EnvVars: env}
	default: // a string type
		return &cli.StringFlag{Name: name, Value: reflect.ValueOf(field).Elem().String(), Usage: usage, Category: category, EnvVars: env}
	}
}

// read sets the field to the value from the command line, the environment or the file.
func (s setting) read(c *cli.Context, positive bool) error {
	value := reflect.ValueOf(c.Value(s.name))
	switch field := s.field.(type) {
	case milliseconds:
		d := c.Duration(s.name)
		if d == 0 && *field.field == 0 {
			return nil // the default
		}
		if d < time.Millisecond || d%time.Millisecond != 0 || d.Milliseconds() > math.MaxInt32 {
			return fmt.Errorf("--%s %v: use whole milliseconds, from 1ms to %v", s.name, d, ttl(math.MaxInt32))
		}
		*field.field = uint32(d.Milliseconds())
		return nil
	case *uint32:
		if n := c.Uint(s.name); n > mostSmallBytes {
			return fmt.Errorf("--%s %d: use at most %d", s.name, n, mostSmallBytes)
		}
	}
	field := reflect.ValueOf(s.field).Elem()
	if positive && value.CanConvert(reflect.TypeFor[float64]()) {
		n := value.Convert(reflect.TypeFor[float64]()).Float()
		if n < 0 || n == 0 && !field.IsZero() {
			return fmt.Errorf("--%s must be positive: leave it out for the default", s.name)
		}
	}
	field.Set(value.Convert(field.Type()))
	return nil
}

// read sets all options.
func (o *options) read(c *cli.Context) error {
	var faults []error
	for _, g := range o.groups() {
		for _, s := range g.settings {
			faults = append(faults, s.read(c, g.positive))
		}
	}
	return errors.Join(faults...)
}
