package httpapi

import (
	"net/http"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestPagesOutOfRangeAreRefused(t *testing.T) {
	c := newCluster(t)
	for _, p := range []*port{start(t, c, "n1"), start(t, c, "n2")} {
		for _, q := range []struct{ procedure, body string }{
			{"LockService/List", `{"pageSize":1001}`},
			{"LockService/List", `{"pageToken":"a/b","stale":true}`},
			{"SessionService/List", `{"pageSize":4294967295}`},
			{"SessionService/List", `{"pageToken":"17"}`},
			{"OperatorService/ListAudit", `{"pageSize":1001}`},
			{"OperatorService/ListAudit", `{"pageToken":"17"}`},
			{"LockService/Get", `{"name":"a","queueLimit":10001}`},
		} {
			p.post(q.procedure, q.body).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
		}
	}
}
