package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/internal/contexts"
)

// contextVerb keeps the clusters that a user works with.
func contextVerb() *cli.Command {
	return &cli.Command{
		Name:  "context",
		Usage: "keep the endpoints, certificates and token files of several clusters",
		Description: "A context is a name for a cluster. It is chosen with --context, with QLOCK_CONTEXT, or for all\n" +
			"commands with qlock context use; flags and variables override its values.\n\n" +
			"   qlock context save prod --endpoints n1:7400,n2:7400 --cacert ca.crt --cert me.crt --key me.key\n" +
			"   qlock context use prod",
		Subcommands: []*cli.Command{
			{Name: "save", Usage: "save the endpoints, certificates and token file of this command line under a name", ArgsUsage: "CONTEXT", Action: saveContext},
			{Name: "use", Usage: "choose the context of all later commands", ArgsUsage: "CONTEXT", Action: useContext},
			{Name: "list", Usage: "list the contexts", Action: listContexts},
			{Name: "delete", Usage: "delete a context", ArgsUsage: "CONTEXT", Action: deleteContext},
		},
	}
}

// contextName returns the name that a verb of context was given.
func contextName(c *cli.Context) (string, error) {
	args := arguments(c)
	if len(args) != 1 || args[0] == "" {
		return "", usagef("%s takes one context's name, as in %s prod", fullName(c), fullName(c))
	}
	return args[0], checkText("the context's name", args[0])
}

// changeContexts changes the file of the contexts.
func changeContexts(c *cli.Context, change func(f *contexts.File, name string) error) error {
	name, err := contextName(c)
	if err != nil {
		return err
	}
	f, err := contexts.Load()
	if err == nil {
		err = change(f, name)
	}
	if err == nil {
		err = f.Save()
	}
	if err != nil {
		return usagef("%w", err)
	}
	return nil
}

func saveContext(c *cli.Context) error {
	if !c.IsSet("endpoints") {
		return usagef("context save needs --endpoints, as in qlock context save prod --endpoints n1:7400,n2:7400")
	}
	if _, err := clientTLS(c); err != nil {
		return err
	}
	own, err := credentialOf(c)
	if err != nil {
		return err
	}
	if own.token != "" && own.token != os.Getenv(tokenVariable) {
		return usagef("a context does not keep a token itself: write it to a file that only you can read, and give --auth-token-file")
	}
	return changeContexts(c, func(f *contexts.File, name string) error {
		saved := contexts.Context{Endpoints: endpoints(c)}
		paths := map[string]string{"cacert": c.String("cacert"), "cert": c.String("cert"), "key": c.String("key"), "token": c.String("auth-token-file")}
		for flag, to := range map[string]*string{"cacert": &saved.CACert, "cert": &saved.Cert, "key": &saved.Key, "token": &saved.AuthTokenFile} {
			if path := paths[flag]; path != "" {
				absolute, err := filepath.Abs(path)
				if err != nil {
					return err
				}
				*to = absolute
			}
		}
		f.Contexts[name] = saved
		return nil
	})
}

func useContext(c *cli.Context) error {
	return changeContexts(c, func(f *contexts.File, name string) error {
		_, err := f.Get(name)
		f.Current = name
		return err
	})
}

func deleteContext(c *cli.Context) error {
	return changeContexts(c, func(f *contexts.File, name string) error {
		_, err := f.Get(name)
		delete(f.Contexts, name)
		if f.Current == name {
			f.Current = ""
		}
		return err
	})
}

// contextLine is a context in the output of context list.
type contextLine struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	contexts.Context
}

func listContexts(c *cli.Context) error {
	if len(arguments(c)) > 0 {
		return usagef("context list takes no arguments")
	}
	f, err := contexts.Load()
	if err != nil {
		return usagef("%w", err)
	}
	lines := []contextLine{}
	for _, name := range f.Names() {
		lines = append(lines, contextLine{name, name == f.Current, f.Contexts[name]})
	}
	return show(c, fields{map[string]any{"contexts": lines}}, func(w io.Writer) {
		if len(lines) == 0 {
			fmt.Fprintln(w, "no contexts")
			return
		}
		t := newTable("", "NAME", "ENDPOINTS", "TLS", "TOKEN")
		for _, l := range lines {
			mark, secure, token := "", "no", "no"
			if l.Current {
				mark = "*"
			}
			if l.CACert != "" || l.Cert != "" {
				secure = "yes"
			}
			if l.AuthTokenFile != "" {
				token = "yes"
			}
			t.row(mark, printable(l.Name), printable(strings.Join(l.Endpoints, ",")), secure, token)
		}
		t.write(w)
	})
}

// chosenContext returns the context that the command line selects. It is empty if none is selected.
func chosenContext(c *cli.Context) (contexts.Context, error) {
	f, err := contexts.Load()
	if err != nil {
		return contexts.Context{}, usagef("%w", err)
	}
	name := f.Current
	if c.IsSet("context") {
		name = c.String("context")
	}
	if name == "" {
		return contexts.Context{}, nil
	}
	chosen, err := f.Get(name)
	if err != nil {
		return contexts.Context{}, usagef("%w", err)
	}
	return chosen, nil
}
