package retired_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/internal/retired"
	"github.com/quorumlock/quorumlock/server/status"
)

var errDisk = errors.New("input/output error")

// unreadable fails to read one key.
type unreadable struct {
	*raft.InmemStore
	key string
}

func (u unreadable) Get(key []byte) ([]byte, error) {
	if string(key) == u.key {
		return nil, errDisk
	}
	return u.InmemStore.Get(key)
}

func TestRetiredNodes(t *testing.T) {
	for kind, key := range map[error]string{
		status.ErrDiverged: "quorumlock.diverged", status.ErrRolledBack: "quorumlock.rolled-back", status.ErrForked: "quorumlock.forked",
	} {
		values := raft.NewInmemStore()
		if err := retired.Check(values); err != nil {
			t.Errorf("before: %v", err)
		}
		if err := retired.Retire(values, kind, "the message"); err != nil {
			t.Error(err)
		}
		if err := retired.Check(values); !errors.Is(err, kind) || !strings.HasSuffix(err.Error(), ": the message") {
			t.Errorf("%v: %v", kind, err)
		}
		if err := retired.Check(unreadable{values, key}); !errors.Is(err, errDisk) {
			t.Errorf("%s cannot be read: %v", key, err)
		}
	}
	if err := retired.Retire(raft.NewInmemStore(), status.ErrReplaced, "the message"); err == nil {
		t.Error("another error retired the node")
	}
}
