package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"
)

// elsewhere are words in flag names that differ in the name of the field.
var elsewhere = map[string]string{
	"client-addr": "Listen.Client", "peer-addr": "Listen.Peer", "http-addr": "Listen.HTTP",
	"advertise-client-addr": "Advertise.Client", "advertise-peer-addr": "Advertise.Peer", "advertise-http-addr": "Advertise.HTTP",
	"config": "configFile",
}

// TestEveryFlagSetsItsField gives each flag in turn a new value, and checks that the field with its name
// has that value and that no other field has changed.
func TestEveryFlagSetsItsField(t *testing.T) {
	fields := map[any]string{}
	for _, g := range defaults().groups() {
		for _, s := range g.settings {
			t.Run(s.name, func(t *testing.T) {
				if milli, ok := s.field.(milliseconds); ok {
					s.field = milli.field
				}
				if other := fields[s.field]; other != "" {
					t.Fatalf("--%s sets the same field", other)
				}
				fields[s.field] = s.name
				text, want := another(t, g, s.name)
				changed := changes(parsed(t), parsed(t, "--"+s.name+"="+text))
				if len(changed) != 1 {
					t.Fatalf("--%s=%s changes %v", s.name, text, changed)
				}
				for path, value := range changed {
					if fmt.Sprint(value) != want {
						t.Errorf("--%s=%s sets %s to %v", s.name, text, path, value)
					}
					if !named(s.name, path) {
						t.Errorf("--%s sets %s", s.name, path)
					}
				}
			})
		}
	}
}

// named reports whether a field has the name of the flag.
func named(flag, path string) bool {
	if elsewhere[flag] != "" {
		return path == elsewhere[flag]
	}
	plain := strings.ToLower(strings.NewReplacer(".", "", "Limits.", "").Replace(path))
	return strings.Contains(plain, strings.ReplaceAll(flag, "-", ""))
}

// another returns a value that is not the flag's default, and how the field prints it.
func another(t *testing.T, g group, name string) (text, want string) {
	t.Helper()
	i := slices.IndexFunc(g.settings, func(s setting) bool { return s.name == name })
	switch field := g.settings[i].field.(type) {
	case *bool:
		return fmt.Sprint(!*field), fmt.Sprint(!*field)
	case *time.Duration:
		return (*field + 7*time.Millisecond).String(), (*field + 7*time.Millisecond).String()
	case milliseconds:
		return fmt.Sprint(*field.field+7, "ms"), fmt.Sprint(*field.field + 7)
	case *int, *int64, *uint64, *uint32:
		value := reflect.ValueOf(field).Elem()
		next := value.Convert(reflect.TypeFor[int64]()).Int() + 7
		return fmt.Sprint(next), fmt.Sprint(next)
	}
	return "other", "other"
}

// parsed returns the options that the command line makes of these arguments.
func parsed(t *testing.T, args ...string) *options {
	t.Helper()
	o := defaults()
	app := newApp(nil)
	app.Action = func(c *cli.Context) error { return o.read(c) }
	if err := app.Run(append([]string{"qlockd"}, args...)); err != nil {
		t.Fatal(err)
	}
	return o
}

// changes returns the fields in which two options differ, by path, with the values of b.
func changes(a, b *options) map[string]any {
	found := map[string]any{}
	compare("", reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), found)
	return found
}

func compare(path string, a, b reflect.Value, found map[string]any) {
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			field := a.Type().Field(i)
			name := path
			if !field.Anonymous {
				name = strings.TrimPrefix(path+"."+field.Name, ".")
			}
			compare(name, a.Field(i), b.Field(i), found)
		}
	case reflect.Pointer:
		if a.Pointer() != b.Pointer() && !a.IsNil() && !b.IsNil() && path == "Settings" {
			compare(path, a.Elem(), b.Elem(), found)
		}
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		if !a.Equal(b) {
			found[path] = printable(b)
		}
	}
}

// printable returns a value that can be printed even if its field is not exported.
func printable(v reflect.Value) any {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return time.Duration(v.Int())
	case v.Kind() == reflect.String:
		return v.String()
	case v.Kind() == reflect.Bool:
		return v.Bool()
	case v.CanInt():
		return v.Int()
	}
	return v.Uint()
}

// unflagged are the fields of the configuration that no flag sets.
var unflagged = []string{
	"Commit", "HTTPLimits.BodyTimeout", "HTTPLimits.HeaderTimeout", "HTTPLimits.IdleTimeout", "HTTPLimits.LeaderWait", "HTTPLimits.MaxBodyBytes",
	"HTTPLimits.MaxHandshakes", // set by --max-handshakes
	"HTTPLimits.MaxHeaderBytes", "HTTPLimits.MaxWatchesPerConnection", "HTTPLimits.RetryGrace", "HTTPLimits.WatchTimeout", "HTTPLimits.WriteTimeout",
	"Limits.MaxLeaseWaits", "Limits.MaxWatchesPerConnection", "SnapshotInterval", "Stores.Incarnation", "Version",
}

// TestEveryFieldHasAFlag checks that every field of the configuration is either set by a flag or listed in
// unflagged.
func TestEveryFieldHasAFlag(t *testing.T) {
	o := defaults()
	flagged := map[string]bool{}
	for _, g := range o.groups() {
		for _, s := range g.settings {
			if milli, ok := s.field.(milliseconds); ok {
				s.field = milli.field
			}
			flagged[place(reflect.ValueOf(s.field))] = true
		}
	}
	var without []string
	unset("", reflect.ValueOf(o).Elem(), flagged, &without)
	slices.Sort(without)
	if !slices.Equal(without, unflagged) {
		t.Errorf("no flag sets %q", without)
	}
}

func place(pointer reflect.Value) string { return fmt.Sprint(pointer.Pointer()) }

func unset(path string, v reflect.Value, flagged map[string]bool, without *[]string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			name := path
			if !field.Anonymous {
				name = strings.TrimPrefix(path+"."+field.Name, ".")
			}
			unset(name, v.Field(i), flagged, without)
		}
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Uint32, reflect.Uint64:
		if !flagged[place(v.Addr())] {
			*without = append(*without, path)
		}
	}
}

// TestHandshakesAreBoundedOnBothPorts checks that one flag sets the limit of both ports.
func TestHandshakesAreBoundedOnBothPorts(t *testing.T) {
	app := newApp(nil)
	app.Action = func(c *cli.Context) error {
		cfg, err := configure(c)
		if cfg.Limits.MaxHandshakes != 77 || cfg.HTTPLimits.MaxHandshakes != 77 {
			t.Errorf("client port %d, HTTP port %d", cfg.Limits.MaxHandshakes, cfg.HTTPLimits.MaxHandshakes)
		}
		return err
	}
	if err := app.Run([]string{"qlockd", "--max-handshakes", "77"}); err != nil {
		t.Fatal(err)
	}
}
