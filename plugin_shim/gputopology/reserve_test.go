package gputopology

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

func reserveRefusing(code pb.Verdict_Code, reason string, generation uint64) func(*pb.ReserveRequest) (*pb.ReserveResponse, error) {
	return func(*pb.ReserveRequest) (*pb.ReserveResponse, error) {
		return &pb.ReserveResponse{Verdict: &pb.Verdict{Code: code, Reason: reason}, Generation: generation}, nil
	}
}

func TestReserve(t *testing.T) {
	for name, test := range map[string]struct {
		reserve func(*pb.ReserveRequest) (*pb.ReserveResponse, error)
		want    fwk.Code
		// held and freed: what the books say after Reserve, and whether Unreserve calls the service.
		held, freed bool
		woken       bool
	}{
		"held":                      {reserve: reserving(`{"main":["GPU-1"]}`), want: fwk.Success, held: true, freed: true},
		"refused on a newer state":  {reserve: reserveRefusing(pb.Verdict_CODE_UNSCHEDULABLE, "taken", 2), want: fwk.Unschedulable, woken: true},
		"refused on the same state": {reserve: reserveRefusing(pb.Verdict_CODE_UNSCHEDULABLE, "taken", 1), want: fwk.Unschedulable},
		"refused for good":          {reserve: reserveRefusing(pb.Verdict_CODE_UNRESOLVABLE, "gone", 1), want: fwk.UnschedulableAndUnresolvable},
		"retry":                     {reserve: reserveRefusing(pb.Verdict_CODE_RETRY, "stale", 1), want: fwk.Error},
		"no verdict":                {reserve: reserveRefusing(0, "", 1), want: fwk.Error, freed: true},
		"OK without GPUs":           {reserve: reserving(""), want: fwk.Error, freed: true},
		"no answer": {reserve: func(*pb.ReserveRequest) (*pb.ReserveResponse, error) {
			return nil, status.Error(codes.DeadlineExceeded, "late")
		}, want: fwk.Error, freed: true},
	} {
		t.Run(name, func(t *testing.T) {
			service := newFakeService(abc...)
			service.filter, service.reserve = service.feasible(1), test.reserve
			b := connected(t, service, nil)
			pod := gpuPod("p", 1)
			state, _, _ := b.preFilter(pod, nodesNamed(abc...))
			if got := b.plugin.Reserve(b.ctx, state, pod, "b"); got.Code() != test.want {
				t.Errorf("got %v, want %s", got, test.want)
			}
			if _, held := b.plugin.link.books.held[pod.UID]; held != test.held {
				t.Errorf("held: %v, want %v", held, test.held)
			}
			if (len(b.handle.woken) > 0) != test.woken {
				t.Errorf("woken: %v, want %v", !test.woken, test.woken)
			}
			b.plugin.Unreserve(b.ctx, state, pod, "b")
			b.plugin.Unreserve(b.ctx, state, pod, "b")
			if _, held := b.plugin.link.books.held[pod.UID]; held {
				t.Error("still held after Unreserve")
			}
			if !test.freed {
				if left := b.plugin.link.books.unacknowledged(); len(left) > 0 || len(service.unreserves) > 0 {
					t.Errorf("Unreserve called for nothing: %v", left)
				}
				return
			}
			request := receive(t, service.unreserves, "Unreserve")
			if request.GetPodUid() != string(pod.UID) || request.GetOutcome() != pb.UnreserveRequest_OUTCOME_NOT_BOUND ||
				request.GetAttempt().GetNumber() != readCycle(state).attempt.GetNumber() {
				t.Errorf("got %v", request)
			}
		})
	}
}

func TestReserveNamesTheNodeOfTheVerdictsTable(t *testing.T) {
	service := newFakeService(abc...)
	service.filter = service.feasible(1)
	var asked *pb.ReserveRequest
	service.reserve = func(request *pb.ReserveRequest) (*pb.ReserveResponse, error) {
		asked = request
		return reserving(`{}`)(request)
	}
	b := connected(t, service, nil)
	pod := gpuPod("p", 1)
	state, _, _ := b.preFilter(pod, nodesNamed(abc...))
	service.do(func() { service.epoch, service.names = 8, []string{"b"} })
	if _, err := b.plugin.link.tables.fetch(b.ctx); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, b.plugin.Reserve(b.ctx, state, pod, "b"), fwk.Success, "")
	if asked.GetEpoch() != 7 || asked.GetNode() != 1 {
		t.Errorf("asked for node %d of table %d", asked.GetNode(), asked.GetEpoch())
	}
	wantStatus(t, b.plugin.Reserve(b.ctx, state, pod, "unknown"), fwk.UnschedulableAndUnresolvable, reasonUnknownNode)
}

func TestUnreserveWithoutReserveChangesNothing(t *testing.T) {
	service := newFakeService(abc...)
	service.filter = service.feasible(0)
	b := connected(t, service, nil)
	pod := gpuPod("p", 1)
	state, _, _ := b.preFilter(pod, nodesNamed(abc...))
	b.plugin.Unreserve(b.ctx, state, pod, "a")
	b.plugin.Unreserve(b.ctx, newState(), plainPod("q"), "a")
	if left := b.plugin.link.books.unacknowledged(); len(left) > 0 || len(service.unreserves) > 0 {
		t.Errorf("Unreserve called for nothing: %v", left)
	}
}
