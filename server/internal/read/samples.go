package read

import (
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// ListSamples returns what this node has measured, and of that the newest that fits. A caller that may not read all locks
// does not learn what expires, which the status of the cluster does not tell it either.
func (r *View) ListSamples() (*wire.ListSamplesResponse, *wire.Result) {
	resp, all := r.source.Samples(), r.caller.Grants().OnAllLocks(wire.Verb_READ)
	return fit(r.limit, uint32(max(len(resp.GetSamples()), 1)), func(size uint32) *wire.ListSamplesResponse {
		resp.Samples = resp.Samples[max(0, len(resp.Samples)-int(size)):]
		if !all {
			resp.Samples = access.Samples(resp.Samples)
		}
		return resp
	})
}
