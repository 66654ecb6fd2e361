package main

import (
	"context"
	"database/sql"
	"log"
	"net/http"
	"os"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/fence"
)

func main() {
	c, err := client.New(client.FromEnv())
	if err != nil {
		log.Fatal(err)
	}
	s := c.Supervise(client.SupervisedOptions{FailFast: true})
	db, err := sql.Open("sqlite3", os.Getenv("DATABASE"))
	if err != nil {
		log.Fatal(err)
	}
	accounts := fence.Table{Dialect: fence.SQLite, Name: "accounts"}
	http.HandleFunc("PUT /accounts/{id}", func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		err := s.Do(r.Context(), "accounts/"+id, func(ctx context.Context, token uint64) error {
			query, args, err := accounts.Update(token, fence.Row{"id": id}, fence.Row{"balance": r.FormValue("balance")})
			if err != nil {
				return err
			}
			return fence.Applied(db.ExecContext(ctx, query, args...)) // refused after a later holder's write
		}, client.WithWait(time.Second))
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	log.Fatal(http.ListenAndServe(os.Getenv("LISTEN"), nil))
}
