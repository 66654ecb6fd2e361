package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"

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
	converters := s.Semaphore("converters", 3) // on all machines together
	var all sync.WaitGroup
	for _, file := range os.Args[1:] {
		all.Go(func() {
			hold, err := converters.Acquire(ctx, 1)
			if err != nil {
				log.Fatal(err)
			}
			defer hold.Unlock(ctx)
			fmt.Println("converting", file)
		})
	}
	all.Wait()
}
