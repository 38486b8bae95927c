package gputopology

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics/legacyregistry"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

func worker(name string) *v1.Pod { return memberOf("job", gpuPod(name, 1)) }

// planned connects to a service whose members all belong to one plan.
func planned(t *testing.T, member *pb.PlanMember) (*testBench, *fakeService) {
	t.Helper()
	service := newFakeService(abc...)
	b := connected(t, service, nil)
	service.planning(member)
	return b, service
}

func wantTold(t *testing.T, waiting *fakeWaitingPod, want string) {
	t.Helper()
	if told := receive(t, waiting.told, "the end of the wait"); told != want {
		t.Fatalf("told %q, want %q", told, want)
	}
}

// wantEndings awaits an Unreserve of each pod, all of which end this plan; an empty name: none ends one.
func wantEndings(t *testing.T, service *fakeService, plan string, pods ...*v1.Pod) {
	t.Helper()
	left := sets.New[string]()
	for _, pod := range pods {
		left.Insert(string(pod.UID))
	}
	for len(left) > 0 {
		request := receive(t, service.unreserves, "Unreserve")
		if !left.Has(request.GetPodUid()) || request.GetEndedPlan() != plan || request.GetOutcome() != pb.UnreserveRequest_OUTCOME_NOT_BOUND {
			t.Fatalf("got %v, want one of %v that ends %q", request, sets.List(left), plan)
		}
		left.Delete(request.GetPodUid())
	}
}

func TestTheLastMemberLetsAllGo(t *testing.T) {
	b, _ := planned(t, planOf("p1", 3))
	first, firstWaits := b.waits(worker("w0"))
	_, secondWaits := b.waits(memberOf("job", plainPod("launcher")))
	if len(firstWaits.told)+len(secondWaits.told) > 0 {
		t.Fatal("some were told before all had come")
	}
	_, got := b.toPermit(worker("w1"))
	wantStatus(t, got, fwk.Success, "")
	wantTold(t, firstWaits, allowed)
	wantTold(t, secondWaits, allowed)
	bindings := recordBinding(b.api)
	wantStatus(t, b.plugin.Bind(b.ctx, first, worker("w0"), "a"), fwk.Success, "")
	receive(t, bindings, "the Binding")

	// One that comes later does not wait.
	_, got = b.toPermit(worker("w2"))
	wantStatus(t, got, fwk.Success, "")
}

func TestAMemberWaitsAsLongAsTheArgsSay(t *testing.T) {
	service := newFakeService(abc...)
	service.planning(planOf("p1", 2))
	b := connected(t, service, map[string]string{"permitTimeout": "7m"})
	state, _, _ := b.preFilter(worker("w0"), nodesNamed(abc...))
	b.plugin.Reserve(b.ctx, state, worker("w0"), "a")
	if _, patience := b.plugin.Permit(b.ctx, state, worker("w0"), "a"); patience != 7*time.Minute {
		t.Errorf("waits %s", patience)
	}
}

func TestPodsOfNoGroupDoNotWait(t *testing.T) {
	b, state, pod := reserved(t, newFakeService(abc...))
	for _, state := range []*fakeState{state, newState()} {
		got, _ := b.plugin.Permit(b.ctx, state, pod, "a")
		wantStatus(t, got, fwk.Success, "")
		b.plugin.PostBind(b.ctx, state, pod, "a")
	}
}

func TestAMemberOfAGroupThatHasStartedIsLetGoAtOnce(t *testing.T) {
	b, service := planned(t, planOf("p1", 0))
	state, got := b.toPermit(worker("w7"))
	wantStatus(t, got, fwk.Success, "")
	b.plugin.Unreserve(b.ctx, state, worker("w7"), "a")
	wantEndings(t, service, "", worker("w7"))
}

func TestAMemberOfAGroupThatHasStartedEndsNoPlanBeforePermit(t *testing.T) {
	b, service := planned(t, planOf("p1", 0))
	state, _, _ := b.preFilter(worker("w7"), nodesNamed(abc...))
	wantStatus(t, b.plugin.Reserve(b.ctx, state, worker("w7"), "a"), fwk.Success, "")
	b.plugin.Unreserve(b.ctx, state, worker("w7"), "a")
	wantEndings(t, service, "", worker("w7"))
}

func TestOneMemberCountsOnce(t *testing.T) {
	b, _ := planned(t, planOf("p1", 2))
	for range 3 {
		_, got := b.toPermit(worker("w0"))
		wantStatus(t, got, fwk.Wait, "")
	}
}

func TestAMemberThatFailsEndsTheWholePlan(t *testing.T) {
	b, service := planned(t, planOf("p1", 3))
	acknowledge := make(chan struct{})
	service.do(func() { service.unreserve = func(*pb.UnreserveRequest) error { <-acknowledge; return nil } })
	first, _ := b.waits(worker("w0"))
	second, secondWaits := b.waits(memberOf("job", plainPod("launcher")))
	b.plugin.Unreserve(b.ctx, first, worker("w0"), "a")
	wantTold(t, secondWaits, reasonPlanEnded)
	b.plugin.link.gangs.settle()
	if len(secondWaits.told) > 0 {
		t.Error("refused twice")
	}
	b.plugin.Unreserve(b.ctx, second, memberOf("job", plainPod("launcher")), "a")

	// The service still answers from the plan: it has not been told.
	third, got := b.toPermit(worker("w1"))
	wantStatus(t, got, fwk.Unschedulable, reasonPlanEnded)
	b.plugin.Unreserve(b.ctx, third, worker("w1"), "a")
	if len(b.handle.woken) > 0 {
		t.Error("a member is tried again before the service knows that the plan has ended")
	}
	close(acknowledge)
	wantEndings(t, service, "p1", worker("w0"), plainPod("launcher"), worker("w1"))
	for want := sets.New("uid-of-w0", "uid-of-launcher", "uid-of-w1"); len(want) > 0; {
		want.Delete(string(receive(t, b.handle.woken, "another try")))
	}
	if held := b.plugin.link.books.statement().GetHeld(); len(held) > 0 {
		t.Errorf("still held: %v", held)
	}
}

func TestAMemberThatFailsAfterItWasLetGoIsAlone(t *testing.T) {
	b, service := planned(t, planOf("p1", 2))
	b.handle.see(t, worker("w1"))
	first, firstWaits := b.waits(worker("w0"))
	b.toPermit(worker("w1"))
	wantTold(t, firstWaits, allowed)
	b.plugin.Unreserve(b.ctx, first, worker("w0"), "a")
	wantEndings(t, service, "", worker("w0"))
	if held := b.plugin.link.books.statement().GetHeld(); len(held) != 1 || held[0].GetPod().GetUid() != "uid-of-w1" || !held[0].GetLetGo() {
		t.Errorf("held: %v", held)
	}
	// It has its place again, and does not wait.
	_, got := b.toPermit(worker("w0"))
	wantStatus(t, got, fwk.Success, "")
}

func TestPlansThatTheServiceEndsAreRefused(t *testing.T) {
	b, service := planned(t, planOf("p1", 3))
	_, waits := b.waits(worker("w0"))
	onItsWay, _, _ := b.preFilter(worker("w1"), nodesNamed(abc...))
	b.plugin.Reserve(b.ctx, onItsWay, worker("w1"), "a")
	service.changes <- &pb.ChangesResponse{Epoch: 7, TableSize: 3, EndedPlans: []string{"p1", "nobody's"}}
	wantTold(t, waits, reasonPlanEnded)
	got, _ := b.plugin.Permit(b.ctx, onItsWay, worker("w1"), "a")
	wantStatus(t, got, fwk.Unschedulable, reasonPlanEnded)
	b.plugin.Unreserve(b.ctx, onItsWay, worker("w1"), "a")
	wantEndings(t, service, "p1", worker("w1"))
}

func TestAPlanThatWasLetGoDoesNotEnd(t *testing.T) {
	b, service := planned(t, planOf("p1", 1))
	state, got := b.toPermit(worker("w0"))
	wantStatus(t, got, fwk.Success, "")
	service.changes <- &pb.ChangesResponse{Epoch: 7, TableSize: 3, EndedPlans: []string{"p1", "p2"}}
	eventually(t, "the end of the other", func() bool {
		b.plugin.link.gangs.mu.Lock()
		defer b.plugin.link.gangs.mu.Unlock()
		return b.plugin.link.gangs.plans["p2"] != nil
	})
	recordBinding(b.api)
	wantStatus(t, b.plugin.Bind(b.ctx, state, worker("w0"), "a"), fwk.Success, "")
}

func TestAMemberThatBeginsToWaitJustAfterTheDecisionIsTold(t *testing.T) {
	for want, decide := range map[string]func(*testBench){
		allowed:         func(b *testBench) { b.toPermit(worker("w1")) },
		reasonPlanEnded: func(b *testBench) { b.plugin.link.gangs.end("p1") },
	} {
		t.Run(want, func(t *testing.T) {
			b, _ := planned(t, planOf("p1", 2))
			_, got := b.toPermit(worker("w0"))
			wantStatus(t, got, fwk.Wait, "")
			decide(b)
			wantTold(t, b.handle.permit.begin("uid-of-w0"), want)
		})
	}
}

func TestAReserveWithoutAnswerEndsThePlan(t *testing.T) {
	b, service := planned(t, planOf("p1", 3))
	_, waits := b.waits(worker("w0"))
	service.do(func() {
		service.reserve = func(*pb.ReserveRequest) (*pb.ReserveResponse, error) {
			return nil, status.Error(codes.Internal, "late")
		}
	})
	state, _, _ := b.preFilter(worker("w1"), nodesNamed(abc...))
	if got := b.plugin.Reserve(b.ctx, state, worker("w1"), "a"); got.Code() != fwk.Error {
		t.Fatalf("got %v", got)
	}
	b.plugin.Unreserve(b.ctx, state, worker("w1"), "a")
	wantTold(t, waits, reasonPlanEnded)
	wantEndings(t, service, "p1", worker("w1"))
	eventually(t, "the acknowledgement", func() bool { return len(b.plugin.link.books.unacknowledged()) == 0 })
	if len(b.handle.woken) > 0 {
		t.Error("a pod whose Reserve fails is tried again without backoff")
	}
}

func TestAReserveThatIsRefusedLeavesThePlan(t *testing.T) {
	b, service := planned(t, planOf("p1", 3))
	_, waits := b.waits(worker("w0"))
	service.do(func() { service.reserve = reserveRefusing(pb.Verdict_CODE_UNSCHEDULABLE, "taken", 1) })
	state, _, _ := b.preFilter(worker("w1"), nodesNamed(abc...))
	wantStatus(t, b.plugin.Reserve(b.ctx, state, worker("w1"), "a"), fwk.Unschedulable, "taken")
	b.plugin.Unreserve(b.ctx, state, worker("w1"), "a")
	if len(waits.told) > 0 || len(b.plugin.link.books.unacknowledged())+len(service.unreserves) > 0 {
		t.Error("the service knows that it refused, and what becomes of the plan")
	}
}

func TestAReserveThatNamesNoPlanIsAnError(t *testing.T) {
	b, service := planned(t, planOf("p1", 2))
	service.do(func() { service.reserve = reserving(`{"main":["GPU-1"]}`) })
	state, _, _ := b.preFilter(worker("w0"), nodesNamed(abc...))
	if got := b.plugin.Reserve(b.ctx, state, worker("w0"), "a"); got.Code() != fwk.Error {
		t.Errorf("got %v", got)
	}
}

func TestThePlanThatReserveNamesCounts(t *testing.T) {
	b, service := planned(t, planOf("p1", 2))
	b.handle.see(t, worker("w0"))
	state, _, _ := b.preFilter(worker("w0"), nodesNamed(abc...))
	service.planning(planOf("p2", 2)) // It was made anew in between.
	wantStatus(t, b.plugin.Reserve(b.ctx, state, worker("w0"), "a"), fwk.Success, "")
	if held := b.plugin.link.books.statement().GetHeld(); len(held) != 1 || held[0].GetMember().GetPlan() != "p2" {
		t.Errorf("held: %v", held)
	}
	b.plugin.Unreserve(b.ctx, state, worker("w0"), "a")
	wantEndings(t, service, "p2", worker("w0"))
}

func TestNoMemberIsBoundBeforeItsPlanIsLetGo(t *testing.T) {
	b, service := planned(t, planOf("p1", 2))
	bindings := recordBinding(b.api)
	for _, pod := range []*v1.Pod{worker("w0"), memberOf("job", plainPod("launcher"))} {
		state, _, _ := b.preFilter(pod, nodesNamed(abc...))
		b.plugin.Reserve(b.ctx, state, pod, "a")
		wantStatus(t, b.plugin.Bind(b.ctx, state, pod, "a"), fwk.Error, errNotLetGo.Error())
		b.plugin.Unreserve(b.ctx, state, pod, "a")
		wantEndings(t, service, "p1", pod)
		wantStatus(t, b.plugin.Bind(b.ctx, state, pod, "a"), fwk.Error, errNotLetGo.Error())
	}
	if len(bindings) > 0 {
		t.Error("part of a group is bound")
	}
}

func TestAConflictEndsThePlanOfAWaitingMember(t *testing.T) {
	b, service := planned(t, planOf("p1", 3))
	for _, name := range []string{"w0", "w1"} {
		b.handle.see(t, worker(name))
	}
	_, firstWaits := b.waits(worker("w0"))
	_, secondWaits := b.waits(worker("w1"))
	service.do(func() { service.conflict = []string{"uid-of-w1"} })
	if _, err := b.plugin.link.books.resync(b.ctx); err != nil {
		t.Fatal(err)
	}
	wantTold(t, firstWaits, reasonPlanEnded)
	wantTold(t, secondWaits, reasonPlanEnded)
}

func TestAServiceThatStartsAnewIsToldOfPlans(t *testing.T) {
	b, service := planned(t, planOf("waits", 3))
	for _, name := range []string{"w0", "v0"} {
		b.handle.see(t, worker(name))
	}
	_, waits := b.waits(worker("w0"))
	service.planning(planOf("let-go", 1))
	b.toPermit(worker("v0"))
	service.server.Stop()

	again := newFakeService(abc...)
	again.serve(t, b.socket)
	held := map[string]*pb.Held{}
	for _, each := range receive(t, again.resyncs, "Resync").GetHeld() {
		held[each.GetPod().GetUid()] = each
	}
	if h := held["uid-of-w0"]; h.GetMember().GetPlan() != "waits" || h.GetMember().GetNeeded() != 3 || h.GetLetGo() || h.GetPod().GetMembership() == nil {
		t.Errorf("of the waiting member: %v", h)
	}
	if h := held["uid-of-v0"]; h.GetMember().GetPlan() != "let-go" || !h.GetLetGo() {
		t.Errorf("of the member that was let go: %v", h)
	}
	// Its answers go on where the other's ended.
	again.planning(planOf("waits", 3))
	b.waits(worker("w1"))
	_, got := b.toPermit(worker("w2"))
	wantStatus(t, got, fwk.Success, "")
	wantTold(t, waits, allowed)
}

func TestPlansAreCounted(t *testing.T) {
	counted := func() map[string]float64 {
		families, err := legacyregistry.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				values[family.GetName()] += metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
		return values
	}
	b, _ := planned(t, planOf("p1", 2))
	before := counted()
	b.waits(worker("w0"))
	b.toPermit(worker("w1"))
	b.plugin.link.gangs.end("p2", "p2")
	b.plugin.link.gangs.come("uid-of-late", planOf("p3", 0), time.Minute)
	after := counted()
	for _, name := range []string{"plans_let_go_total", "plan_wait_seconds", "plans_ended_total"} {
		if name = "pyscheduler_shim_" + name; after[name]-before[name] != 1 {
			t.Errorf("%s grew by %v, want 1", name, after[name]-before[name])
		}
	}
}
