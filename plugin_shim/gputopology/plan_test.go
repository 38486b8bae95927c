package gputopology

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

// planOn answers every Plan with this node.
func planOn(service *fakeService, node uint32) func(*pb.PlanRequest) (*pb.PlanResponse, error) {
	return func(*pb.PlanRequest) (*pb.PlanResponse, error) {
		answer := &pb.PlanResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_OK}, Generation: 1, Node: &node, Member: planOf("p1", 2)}
		service.do(func() { answer.Epoch, answer.TableSize = service.epoch, uint32(len(service.names)) })
		return answer, nil
	}
}

func planRefusing(code pb.Verdict_Code, reason string) func(*pb.PlanRequest) (*pb.PlanResponse, error) {
	return func(*pb.PlanRequest) (*pb.PlanResponse, error) {
		return &pb.PlanResponse{Verdict: &pb.Verdict{Code: code, Reason: reason}, Epoch: 7, Generation: 1}, nil
	}
}

func TestAMemberIsGivenItsPlannedNode(t *testing.T) {
	service := newFakeService(abc...)
	var asked *pb.PlanRequest
	service.plan = func(request *pb.PlanRequest) (*pb.PlanResponse, error) {
		asked = request
		return planOn(service, 2)(request)
	}
	b := connected(t, service, nil)
	pod := memberOf("job", gpuPod("p", 2))
	nodes := []fwk.NodeInfo{nodeOf("c", "1", "1", "1", "7"), nodeNamed("b", cordoned), nodeOf("a", "1", "1", "1", "9")}
	state, result, got := b.preFilter(pod, nodes)
	wantStatus(t, got, fwk.Success, "")
	if !result.NodeNames.Equal(sets.New("c")) {
		t.Errorf("restricted to %v", sets.List(result.NodeNames))
	}
	want := &pb.PlanRequest{
		Attempt: readCycle(state).attempt, Pod: describe(pod, bothResources, nil),
		Eligible: &pb.NodeSet{Epoch: 7, Bitmap: bitmapOf(3, 0, 2), Known: 3}, Room: []byte{9, 7},
	}
	if !proto.Equal(asked, want) || asked.GetPod().GetMembership() == nil {
		t.Errorf("asked %v\nwant  %v", asked, want)
	}
	for name, want := range map[string]fwk.Code{"a": fwk.Unschedulable, "b": fwk.Unschedulable, "c": fwk.Success, "unknown": fwk.Unschedulable} {
		if got := b.plugin.Filter(b.ctx, state.Clone(), pod, nodeNamed(name)); got.Code() != want {
			t.Errorf("Filter of %s: %v, want %s", name, got, want)
		}
	}
	wantStatus(t, b.plugin.PreScore(b.ctx, state, pod, nodesNamed("c")), fwk.Success, "")
	if service.count("Filter")+service.count("Score") > 0 {
		t.Error("the service was asked for more than the plan")
	}
}

func TestALauncherMayGoAnywhereAndHoldsNoGPUs(t *testing.T) {
	service := newFakeService(abc...)
	service.planning(planOf("p1", 1))
	b := connected(t, service, nil)
	pod := memberOf("job", plainPod("launcher"))
	state, result, got := b.preFilter(pod, nodesNamed(abc...))
	wantStatus(t, got, fwk.Success, "")
	if !result.AllNodes() {
		t.Errorf("restricted to %v", sets.List(result.NodeNames))
	}
	wantStatus(t, b.plugin.Filter(b.ctx, state, pod, nodeNamed("unknown")), fwk.Success, "")
	wantStatus(t, b.plugin.PreScore(b.ctx, state, pod, nodesNamed(abc...)), fwk.Skip, "")
	wantStatus(t, b.plugin.Reserve(b.ctx, state, pod, "b"), fwk.Success, "")
	status, _ := b.plugin.Permit(b.ctx, state, pod, "b")
	wantStatus(t, status, fwk.Success, "")
	wantStatus(t, b.plugin.Bind(b.ctx, state, pod, "b"), fwk.Skip, "")
	b.plugin.PostBind(b.ctx, state, pod, "b")
	if service.count("Reserve") > 0 || len(b.plugin.link.books.statement().GetHeld()) > 0 {
		t.Error("GPUs are held for a pod that asks for none")
	}
	if len(b.plugin.link.waiting.pods) > 0 {
		t.Error("the bound pod is still remembered")
	}
}

func TestPlanVerdicts(t *testing.T) {
	member := planOf("p1", 2)
	ok := func(change func(*pb.PlanResponse)) func(*pb.PlanRequest) (*pb.PlanResponse, error) {
		return func(*pb.PlanRequest) (*pb.PlanResponse, error) {
			answer := &pb.PlanResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_OK}, Epoch: 7, Node: ptr.To[uint32](0), Member: member}
			change(answer)
			return answer, nil
		}
	}
	for name, test := range map[string]struct {
		plan    func(*pb.PlanRequest) (*pb.PlanResponse, error)
		want    fwk.Code
		message string
	}{
		"unschedulable":   {plan: planRefusing(pb.Verdict_CODE_UNSCHEDULABLE, "3 of 4 members are there"), want: fwk.Unschedulable, message: "3 of 4 members are there"},
		"unresolvable":    {plan: planRefusing(pb.Verdict_CODE_UNRESOLVABLE, "two groups"), want: fwk.UnschedulableAndUnresolvable, message: "two groups"},
		"retry":           {plan: planRefusing(pb.Verdict_CODE_RETRY, "not yet"), want: fwk.Error, message: "not yet"},
		"no code":         {plan: planRefusing(0, ""), want: fwk.Error, message: "the verdict code 0"},
		"no node":         {plan: ok(func(a *pb.PlanResponse) { a.Node = nil }), want: fwk.Error, message: "a verdict that names no known node"},
		"an unknown node": {plan: ok(func(a *pb.PlanResponse) { a.Node = ptr.To[uint32](3) }), want: fwk.Error, message: "a verdict that names no known node"},
		"no plan":         {plan: ok(func(a *pb.PlanResponse) { a.Member = nil }), want: fwk.Error, message: "a verdict that names no plan"},
	} {
		t.Run(name, func(t *testing.T) {
			service := newFakeService(abc...)
			service.plan = test.plan
			b := connected(t, service, nil)
			_, result, got := b.preFilter(memberOf("job", gpuPod("p", 1)), nodesNamed(abc...))
			if got.Code() != test.want || !strings.Contains(got.Message(), test.message) || result != nil {
				t.Errorf("got %v and %v, want %s %q", got, result, test.want, test.message)
			}
		})
	}
}

func TestAPlanByAnotherTableIsAskedForOnceMore(t *testing.T) {
	service := newFakeService(abc...)
	service.plan = func(request *pb.PlanRequest) (*pb.PlanResponse, error) {
		if request.GetEligible().GetEpoch() != 8 {
			return &pb.PlanResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_RETRY}, Epoch: 8}, nil
		}
		return planOn(service, 1)(request)
	}
	b := connected(t, service, nil)
	service.do(func() { service.epoch, service.names = 8, []string{"c", "b"} })
	_, result, got := b.preFilter(memberOf("job", gpuPod("p", 1)), nodesNamed(abc...))
	wantStatus(t, got, fwk.Success, "")
	if !result.NodeNames.Equal(sets.New("b")) || service.count("Plan") != 2 {
		t.Errorf("restricted to %v after %d calls", sets.List(result.NodeNames), service.count("Plan"))
	}
}

func TestAPlanIsRefusedOnlyByAWholeTable(t *testing.T) {
	service := newFakeService(abc...)
	service.plan = func(request *pb.PlanRequest) (*pb.PlanResponse, error) {
		if request.GetEligible().GetKnown() == 4 {
			return planOn(service, 3)(request)
		}
		answer, err := planRefusing(pb.Verdict_CODE_UNSCHEDULABLE, "no room")(request)
		answer.TableSize = 4
		return answer, err
	}
	b := connected(t, service, nil)
	service.do(func() { service.names = append(service.names, "d") })
	_, result, got := b.preFilter(memberOf("job", gpuPod("p", 1)), nodesNamed("a", "b", "c", "d"))
	wantStatus(t, got, fwk.Success, "")
	if !result.NodeNames.Equal(sets.New("d")) {
		t.Errorf("restricted to %v", sets.List(result.NodeNames))
	}
}

func TestAPlanHasADeadlineOfItsOwn(t *testing.T) {
	service := newFakeService(abc...)
	answers := make(chan struct{})
	service.plan = func(request *pb.PlanRequest) (*pb.PlanResponse, error) {
		<-answers
		return planOn(service, 0)(request)
	}
	b := connected(t, service, map[string]string{"planTimeout": "10ms"})
	t.Cleanup(func() { close(answers) })
	_, _, got := b.preFilter(memberOf("job", gpuPod("p", 1)), nodesNamed(abc...))
	wantStatus(t, got, fwk.Error, (&unavailableError{endpoint: b.plugin.args.Endpoint}).Error())
}

func TestAnAnsweredPlanPassesTheTrialOfTheService(t *testing.T) {
	service := newFakeService(abc...)
	service.planning(planOf("p1", 2))
	b := connected(t, service, nil)
	b.plugin.link.client.breaker.try()
	_, _, got := b.preFilter(memberOf("job", gpuPod("p", 1)), nodesNamed(abc...))
	wantStatus(t, got, fwk.Success, "")
	if b.plugin.link.client.breaker.isTrying() {
		t.Error("the service is still on trial")
	}
}

func TestMembersAreNotPlacedByCounting(t *testing.T) {
	b := newTestBench(t, map[string]string{"onUnavailable": "fallback"})
	for _, pod := range []*v1.Pod{memberOf("job", gpuPod("p", 1)), memberOf("job", plainPod("launcher"))} {
		_, _, got := b.preFilter(pod, nodesNamed(abc...))
		wantStatus(t, got, fwk.Error, (&unavailableError{endpoint: b.plugin.args.Endpoint}).Error())
	}
}

func TestNativeGroupsOfMembers(t *testing.T) {
	b := connected(t, newFakeService(abc...), nil)
	for _, test := range []struct {
		pod     *v1.Pod
		code    fwk.Code
		message string
	}{
		{pod: gpuPod("worker", 1), code: fwk.UnschedulableAndUnresolvable, message: reasonSchedulingGroup},
		{pod: plainPod("launcher"), code: fwk.Skip},
	} {
		pod := memberOf("job", test.pod)
		pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To("g")}
		_, _, got := b.preFilter(pod, nodesNamed(abc...))
		wantStatus(t, got, test.code, test.message)
	}
}

// lackingCPU are the statuses of a planned cycle whose node another plugin refused.
func lackingCPU(node string) fwk.NodeToStatusReader {
	lacks := map[string]*fwk.Status{node: fwk.NewStatus(fwk.Unschedulable, "Insufficient cpu")}
	return framework.NewNodeToStatus(lacks, fwk.NewStatus(fwk.UnschedulableAndUnresolvable))
}

func TestAGroupIsPlannedAnewWithoutTheNodeThatOthersRefuse(t *testing.T) {
	service := newFakeService(abc...)
	var told [][]string
	service.plan = func(request *pb.PlanRequest) (*pb.PlanResponse, error) {
		told = append(told, request.GetRefusedNodes())
		switch left := 4 - len(told); left {
		case 0:
			return planRefusing(pb.Verdict_CODE_UNSCHEDULABLE, "no room for the group")(request)
		default:
			return planOn(service, uint32(left-1))(request)
		}
	}
	b := connected(t, service, nil)
	pod := memberOf("job", gpuPod("p", 1))
	for _, node := range []string{"c", "b", "a"} {
		state, _, got := b.preFilter(pod, nodesNamed(abc...))
		wantStatus(t, got, fwk.Success, "")
		_, got = b.plugin.PostFilter(b.ctx, state, pod, lackingCPU(node))
		wantStatus(t, got, fwk.UnschedulableAndUnresolvable, reasonReplan)
		if woken := receive(t, b.handle.woken, "the next cycle"); woken != pod.UID {
			t.Errorf("woke %s", woken)
		}
	}
	state, _, got := b.preFilter(pod, nodesNamed(abc...))
	// Each is told once: for how long the group does without it is the service's to decide.
	if want := [][]string{nil, {"c"}, {"b"}, {"a"}}; !reflect.DeepEqual(told, want) {
		t.Errorf("the service was told of %v, want %v", told, want)
	}
	// What is wrong is what the other plugin said, and it is nothing that an eviction of ours could cure.
	wantStatus(t, got, fwk.Unschedulable, "0/3 nodes are available: 3 Insufficient cpu.")
	_, got = b.plugin.PostFilter(b.ctx, state, pod, lackingCPU("a"))
	wantStatus(t, got, fwk.UnschedulableAndUnresolvable, "")
	if len(b.handle.woken) > 0 {
		t.Error("woken again, though no node is left")
	}
}

func TestANodeThatIsRefusedAgainIsToldAgain(t *testing.T) {
	service := newFakeService(abc...)
	var told []string
	service.plan = func(request *pb.PlanRequest) (*pb.PlanResponse, error) {
		told = append(told, request.GetRefusedNodes()...)
		return planOn(service, 0)(request)
	}
	b := connected(t, service, nil)
	pod := memberOf("job", gpuPod("p", 1))
	for range 2 {
		state, _, _ := b.preFilter(pod, nodesNamed(abc...))
		b.plugin.PostFilter(b.ctx, state, pod, lackingCPU("a"))
		receive(t, b.handle.woken, "the next cycle")
	}
	b.preFilter(pod, nodesNamed(abc...))
	if !slices.Equal(told, []string{"a", "a"}) {
		t.Errorf("told of %v", told)
	}
}

func TestTheServicesWordStandsWhileANodeIsLeft(t *testing.T) {
	service := newFakeService(abc...)
	service.plan = planOn(service, 0)
	b := connected(t, service, nil)
	pod := memberOf("job", gpuPod("p", 1))
	state, _, _ := b.preFilter(pod, nodesNamed(abc...))
	b.plugin.PostFilter(b.ctx, state, pod, lackingCPU("a"))
	service.do(func() { service.plan = planRefusing(pb.Verdict_CODE_UNSCHEDULABLE, "no room for the group") })
	_, _, got := b.preFilter(pod, nodesNamed(abc...))
	wantStatus(t, got, fwk.Unschedulable, "no room for the group")
}

func TestRefusedNodesAreForgotten(t *testing.T) {
	b := newTestBench(t, nil)
	waiting := b.plugin.link.waiting
	for _, name := range []string{"fresh", "bound"} {
		pod := memberOf("job", gpuPod(name, 1))
		waiting.enter(pod)
		waiting.refuse(pod.UID, "a", "Insufficient cpu")
		seen := pod.DeepCopy()
		if name == "bound" {
			seen.Spec.NodeName = "b"
		}
		b.handle.see(t, seen)
	}
	waiting.prune(b.plugin.link.lister)
	if got, _ := waiting.refusedNodes("uid-of-fresh"); len(got) != 1 || got["a"] != "Insufficient cpu" {
		t.Errorf("refused for the other: %v", got)
	}
	if got, _ := waiting.refusedNodes("uid-of-bound"); len(got) > 0 {
		t.Error("the bound pod is still remembered")
	}
}

func TestNobodyIsEvictedForOneMember(t *testing.T) {
	b := newPreemptBench(t, runningPod("low", "a", 0), runningPod("b1", "b", 0))
	b.service.plan = planRefusing(pb.Verdict_CODE_UNSCHEDULABLE, "no room for the group")
	for _, pod := range []*v1.Pod{memberOf("job", urgentPod()), memberOf("job", plainPod("launcher"))} {
		pod.Spec.Priority = ptr.To[int32](preemptorPriority)
		b.handle.see(t, pod)
		state, _, _ := b.preFilter(pod, b.handle.nodes)
		_, got := b.plugin.PostFilter(b.ctx, state, pod, lackingCPU("a"))
		wantStatus(t, got, fwk.UnschedulableAndUnresolvable, "")
	}
	b.wantEvicted()
	if b.service.count("Preempt") > 0 {
		t.Error("the service was asked")
	}
}

func TestALauncherThatLacksCPUPreemptsAsAnyPlainPod(t *testing.T) {
	b := newPreemptBench(t, runningPod("low", "a", 0), runningPod("lower", "a", -1), runningPod("b1", "b", 200))
	b.service.planning(planOf("p1", 2))
	b.needCPU(3)
	pod := memberOf("job", plainPod("launcher"))
	pod.Spec.Priority = ptr.To[int32](preemptorPriority)
	b.handle.see(t, pod)
	state, _, got := b.preFilter(pod, b.handle.nodes)
	wantStatus(t, got, fwk.Success, "")
	refused := framework.NewNodeToStatus(map[string]*fwk.Status{}, fwk.NewStatus(fwk.Unschedulable, "Insufficient cpu"))
	result, _ := b.plugin.PostFilter(b.ctx, state, pod, refused)
	b.wantNominated(result, "a")
	b.wantEvicted("lower")
}
