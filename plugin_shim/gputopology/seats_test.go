package gputopology

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

// planSeating answers every Plan with node 0, and tells that the pod "late" has node 2.
func planSeating(service *fakeService) func(*pb.PlanRequest) (*pb.PlanResponse, error) {
	return func(request *pb.PlanRequest) (*pb.PlanResponse, error) {
		answer, err := planOn(service, 0)(request)
		answer.Seats = []*pb.PlanSeat{{PodUid: "uid-of-late", Node: 2}}
		return answer, err
	}
}

// seated is a plugin whose service has just planned a group of "first" and "late".
func seated(t *testing.T) (b *testBench, late *v1.Pod) {
	t.Helper()
	service := newFakeService(abc...)
	service.plan = planSeating(service)
	b = connected(t, service, nil)
	_, _, got := b.preFilter(memberOf("job", gpuPod("first", 1)), nodesNamed(abc...))
	wantStatus(t, got, fwk.Success, "")
	return b, memberOf("job", gpuPod("late", 1))
}

// wantPlans checks where the next cycle of the pod goes, and how often the service was asked until then.
func (b *testBench) wantPlans(t *testing.T, pod *v1.Pod, node string, calls int) *fakeState {
	t.Helper()
	state, result, got := b.preFilter(pod, nodesNamed(abc...))
	wantStatus(t, got, fwk.Success, "")
	if !result.NodeNames.Equal(sets.New(node)) || b.service.count("Plan") != calls {
		t.Errorf("restricted to %v after %d calls of Plan, want %s after %d", sets.List(result.NodeNames), b.service.count("Plan"), node, calls)
	}
	return state
}

func TestTheOtherMembersGoWhereTheFirstOnesPlanHasThem(t *testing.T) {
	b, late := seated(t)
	b.service.reserve = reserving(`{"main":["GPU-1"]}`)
	state := b.wantPlans(t, late, "c", 1)
	if c := readCycle(state); c.kind != cyclePlanned || c.member.GetPlan() != "p1" {
		t.Errorf("got %+v", c)
	}
	// What came of it is not known, so that the next cycle asks.
	b.wantPlans(t, late, "a", 2)
}

func TestASeatIsNotTakenWhereTheServiceMustBeToldOfARefusedNode(t *testing.T) {
	b, late := seated(t)
	b.plugin.link.waiting.enter(late)
	b.plugin.link.waiting.refuse(late.UID, "c", "Insufficient cpu")
	b.wantPlans(t, late, "a", 2)
}

func TestSeatsEndWithTheirPlan(t *testing.T) {
	for name, end := range map[string]func(b *testBench){
		"ended by the service": func(b *testBench) { b.plugin.link.gangs.end("p1") },
		"lost a member":        func(b *testBench) { b.plugin.link.gangs.leave("uid-of-first", planOf("p1", 2)) },
		"a new connection":     func(b *testBench) { _ = b.plugin.link.greet(b.ctx) },
		"not known any more": func(b *testBench) {
			b.service.do(func() {
				b.service.reserve = func(*pb.ReserveRequest) (*pb.ReserveResponse, error) {
					return &pb.ReserveResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_RETRY}}, nil
				}
			})
			state := newState()
			state.Write(stateKey, &cycle{attempt: &pb.Attempt{Number: 9}, member: planOf("p1", 2), verdict: verdict{table: b.plugin.link.tables.current()}})
			b.plugin.Reserve(b.ctx, state, memberOf("job", gpuPod("first", 1)), "a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, late := seated(t)
			end(b)
			b.wantPlans(t, late, "a", 2)
		})
	}
}

func TestSeatsOfAnotherPlanStay(t *testing.T) {
	b, late := seated(t)
	b.plugin.link.gangs.end("p2")
	b.wantPlans(t, late, "c", 1)
}

func TestASeatIsNotTakenWhileTheServiceIsAway(t *testing.T) {
	b, late := seated(t)
	for !b.plugin.link.client.breaker.isOpen() {
		b.plugin.link.client.breaker.record(false, true)
	}
	_, _, got := b.preFilter(late, nodesNamed(abc...))
	wantStatus(t, got, fwk.Error, (&unavailableError{endpoint: b.plugin.args.Endpoint}).Error())
}
