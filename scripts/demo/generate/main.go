package main

import (
	"cmp"
	"encoding/csv"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/quorumlock/quorumlock/scripts/demo"
)

func main() {
	out := flag.String("o", "refunds.csv", "file to write")
	count := flag.Int("requests", 3200, "requests to make")
	span := flag.Duration("span", 16*time.Second, "time over which they arrive")
	flag.Parse()
	log.SetFlags(0)
	if err := write(*out, generate(*count, *span)); err != nil {
		log.Fatal(err)
	}
}

// generate creates requests order by order, and sorts them by arrival.
func generate(count int, span time.Duration) []demo.Request {
	random := rand.New(rand.NewPCG(2010, 10))
	var requests []demo.Request
	for number := 10001; len(requests) < count; number++ {
		original := demo.Request{
			Arrival: between(random, 0, span*9/10),
			Order:   fmt.Sprintf("R-%d", number),
			Key:     key(random),
			Cents:   100 + random.IntN(250_00),
			Channel: []string{"web", "app"}[random.IntN(2)],
		}
		requests = append(requests, original)
		requests = append(requests, repeats(random, original)...)
	}
	requests = requests[:count]
	for i := range requests {
		requests[i].Arrival = min(requests[i].Arrival, span)
	}
	slices.SortStableFunc(requests, func(a, b demo.Request) int { return cmp.Compare(a.Arrival, b.Arrival) })
	return requests
}

// repeats returns the further requests for the same order.
func repeats(random *rand.Rand, original demo.Request) []demo.Request {
	var again []demo.Request
	switch chance := random.IntN(100); {
	case chance < 15: // a double click: an immediate second submission
		second := original
		second.Key = key(random)
		second.Arrival += between(random, 0, 60*time.Millisecond)
		again = append(again, second)
	case chance < 32: // no answer in time: the same request again, with backoff
		wait := between(random, 100*time.Millisecond, 400*time.Millisecond)
		retry := original
		for range 1 + random.IntN(3) {
			retry.Arrival += wait
			wait *= 2
			again = append(again, retry)
		}
	case chance < 40: // the customer calls support
		second := original
		second.Key, second.Channel = key(random), "support"
		second.Arrival += between(random, time.Second, 6*time.Second)
		again = append(again, second)
	}
	return again
}

func between(random *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(random.Int64N(int64(high-low)))
}

func key(random *rand.Rand) string { return fmt.Sprintf("%012x", random.Uint64()>>16) }

func write(path string, requests []demo.Request) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	writer := csv.NewWriter(file)
	records := [][]string{demo.Header}
	for _, r := range requests {
		records = append(records, []string{
			strconv.FormatInt(r.Arrival.Milliseconds(), 10), r.Order, r.Key, strconv.Itoa(r.Cents), r.Channel,
		})
	}
	if err := writer.WriteAll(records); err != nil {
		return err
	}
	return file.Close()
}
