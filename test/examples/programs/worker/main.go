package main

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c, err := client.New(client.FromEnv())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s := c.Supervise(client.SupervisedOptions{OnLost: func(l client.Loss) { log.Println("lost", l.Locks, l.Reason) }})
	defer s.Close(context.Background())
	err = s.Election("worker").Run(ctx, func(ctx context.Context, l *client.Leadership) error {
		for {
			select {
			case <-ctx.Done(): // lost, or the program ends
				return nil
			case r := <-l.Revoked():
				fmt.Println("handing over:", r.Reason)
				return nil // resigns, and stands again behind the others
			case <-time.After(50 * time.Millisecond):
				fmt.Println("working with token", l.Token())
			}
		}
	})
	log.Println("ends:", err)
}
