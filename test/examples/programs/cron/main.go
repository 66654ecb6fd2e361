package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

func main() {
	ctx := context.Background()
	c, err := client.New(client.FromEnv())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s := c.Supervise(client.SupervisedOptions{})
	defer s.Close(ctx)
	day := time.Now().UTC().Format(time.DateOnly)
	ran, err := s.Once("cron/billing/"+day, 10*time.Minute).Do(ctx, bill)
	if err != nil {
		log.Fatal(err) // not billed, or not recorded: the next start tries again
	}
	fmt.Println("billed by this process:", ran)
}

func bill(_ context.Context, token uint64) error {
	fmt.Println("billing with token", token)
	return nil
}
