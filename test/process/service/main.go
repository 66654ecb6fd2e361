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
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := client.New(client.FromEnv())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s := c.Supervise(client.SupervisedOptions{
		SessionOptions: client.SessionOptions{TTL: 5 * time.Second, Name: "service"},
		OnLost:         func(l client.Loss) { fmt.Println("lost", l.Locks, l.Reason) },
	})
	defer s.Close(context.Background())
	go hold(ctx, s)
	err = s.Election("leader", client.OnWanted(func() { fmt.Println("wanted") })).Run(ctx, func(ctx context.Context, l *client.Leadership) error {
		fmt.Println("leading with token", l.Token())
		<-ctx.Done()
		fmt.Println("leadership over:", context.Cause(ctx))
		return nil
	})
	fmt.Println("ends:", err)
}

// hold holds a lock, again each time it was lost.
func hold(ctx context.Context, s *client.SupervisedSession) {
	for ctx.Err() == nil {
		hold, err := s.Lock(ctx, "service")
		if err != nil {
			continue
		}
		fmt.Println("holding with token", hold.Token())
		<-hold.Context().Done()
	}
}
