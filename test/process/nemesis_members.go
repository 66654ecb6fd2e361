package process

import (
	"context"
	"fmt"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// memberNemeses change the membership.
var memberNemeses = []Nemesis{
	{Name: "add and remove a member", strike: addAndRemove},
	{Name: "remove a voter and take it back", strike: func(s *strike) uint64 {
		id := s.one(s.IDs())
		s.leave(id)
		s.Terminate(id)
		s.Wipe(id)
		s.Restart(id)
		s.enter(id, s.node(id).peer)
		return 1
	}},
	{Name: "wipe a voter and replace it", strike: func(s *strike) uint64 {
		id := s.one(s.IDs())
		s.Kill9(id)
		s.Wipe(id)
		s.Restart(id)
		if code := s.Ended(id); code != refusedCode {
			s.t.Errorf("%s came back without its memory: exit code %d, want %d", id, code, refusedCode)
		}
		s.leave(id)
		s.Restart(id)
		s.enter(id, s.node(id).peer)
		return 1
	}},
	{Name: "put an old copy of a voter's data back, and replace it", strike: func(s *strike) uint64 {
		id := s.one(s.IDs())
		old := s.Copy(id, Frozen)
		s.last()
		s.Kill9(id)
		s.PutBack(id, old)
		s.Restart(id)
		if code := s.Ended(id); code != refusedCode {
			s.t.Errorf("%s came back with an old disk: exit code %d, want %d", id, code, refusedCode)
		}
		s.leave(id)
		s.Wipe(id)
		s.Drop(old)
		s.Restart(id)
		s.enter(id, s.node(id).peer)
		return 1
	}},
}

// refusedCode is the exit code of a node whose disk lacks data that other nodes know it had.
const refusedCode = 70

// addAndRemove adds a member temporarily, which may lead in the meantime.
func addAndRemove(s *strike) uint64 {
	const id = "spare"
	s.enter(id, s.Add(id))
	if s.random.IntN(2) == 0 {
		s.Await("transfer to "+id, WaitTimeout, func(ctx context.Context) error {
			_, err := wirecall.Of(s.client).TransferLeadership(ctx, &wire.TransferLeadershipRequest{Id: id, Reason: "test"})
			return err
		})
	}
	s.leave(id)
	s.Terminate(id)
	s.Retire(id)
	return 1
}

// enter adds a running, empty node, and waits until it is a voter.
func (s *strike) enter(id, peer string) {
	s.t.Helper()
	s.Await("adding "+id, WaitTimeout, func(ctx context.Context) error {
		_, err := wirecall.Of(s.client).AddMember(ctx, &wire.AddMemberRequest{Id: id, PeerAddr: peer, Reason: "test"})
		return err
	})
	s.AwaitStatus(id+" votes", func(st *wire.StatusResponse) error {
		for _, n := range st.GetNodes() {
			if n.GetId() == id && n.GetVoter() {
				return nil
			}
		}
		return fmt.Errorf("%d members", len(st.GetNodes()))
	})
}

// leave removes a member, which transfers leadership first if it leads.
func (s *strike) leave(id string) {
	s.t.Helper()
	s.Await("removing "+id, WaitTimeout, func(ctx context.Context) error {
		st, err := wirecall.Of(s.client).Status(ctx, &wire.StatusRequest{})
		if err != nil {
			return err
		}
		for _, n := range st.GetNodes() {
			if n.GetId() == id {
				_, err := wirecall.Of(s.client).RemoveMember(ctx, &wire.RemoveMemberRequest{Id: id, Reason: "test"})
				if err == nil {
					err = fmt.Errorf("%s is to be gone", id)
				}
				return err
			}
		}
		return nil
	})
}
