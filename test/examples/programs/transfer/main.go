package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/quorumlock/quorumlock/client"
)

func main() {
	ctx := context.Background()
	c, err := client.New(client.FromEnv())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s, err := c.NewSession(ctx, client.SessionOptions{Name: "transfer"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	from, to := os.Args[1], os.Args[2]
	hold, err := s.LockAll(ctx, client.Names("accounts/"+from, "accounts/"+to)) // both or none: no deadlock
	if err != nil {
		log.Fatal(err)
	}
	err = hold.Do(ctx, func(ctx context.Context, token uint64) error {
		fmt.Println("from", from, "to", to, "with token", token)
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
}
