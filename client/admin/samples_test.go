package admin_test

import (
	"context"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client/admin"
)

// TestSamples asks a node what it has measured. TestEveryFieldIsConverted is about the samples themselves.
func TestSamples(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := admin.New(connect(t, node(t), ""))
	got, err := c.Samples(ctx)
	if err != nil || got.NodeID != "n1" || got.Interval != 5*time.Second {
		t.Errorf("%+v, %v", got, err)
	}
	status, err := c.Status(ctx)
	if err != nil || len(status.Nodes) != 1 || status.Nodes[0].DiskSync <= 0 || status.Nodes[0].Commit <= 0 {
		t.Errorf("%+v, %v", status, err)
	}
}
