package gputopology

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

func TestUnreserveIsRepeatedUntilAcknowledged(t *testing.T) {
	service := newFakeService(abc...)
	failures := 2
	service.unreserve = func(*pb.UnreserveRequest) error {
		if failures--; failures >= 0 {
			return status.Error(codes.Internal, "not now")
		}
		return nil
	}
	b, state, pod := reserved(t, service)
	b.plugin.Unreserve(b.ctx, state, pod, "a")
	for range 3 {
		if request := receive(t, service.unreserves, "Unreserve"); request.GetPodUid() != string(pod.UID) {
			t.Errorf("got %v", request)
		}
	}
	eventually(t, "the acknowledgement", func() bool { return len(b.plugin.link.books.unacknowledged()) == 0 })
}

func TestUnreserveOfAnEarlierAttemptLeavesTheLaterOne(t *testing.T) {
	service := newFakeService(abc...)
	b, first, pod := reserved(t, service)
	second, _, _ := b.preFilter(pod, nodesNamed(abc...))
	b.plugin.Reserve(b.ctx, second, pod, "b")
	b.plugin.Unreserve(b.ctx, first, pod, "a")
	request := receive(t, service.unreserves, "Unreserve")
	if request.GetAttempt().GetNumber() != readCycle(first).attempt.GetNumber() {
		t.Errorf("got %v", request)
	}
	held := b.plugin.link.books.statement().GetHeld()
	if len(held) != 1 || held[0].GetAttempt() != readCycle(second).attempt.GetNumber() {
		t.Errorf("held: %v", held)
	}
}

func TestAnEarlierEndingDoesNotReplaceALaterOne(t *testing.T) {
	books := newBooks(nil, nil, 1, "host")
	books.giveBack("uid", books.attempt(5))
	books.doubt("uid", books.attempt(4))
	if left := books.unacknowledged(); len(left) != 1 || left[0].GetAttempt().GetNumber() != 5 {
		t.Errorf("left: %v", left)
	}
}

func TestTheEndOfAPlanIsToldWhateverBecomesOfThePod(t *testing.T) {
	books := newBooks(nil, nil, 1, "host")
	books.giveBack("uid", books.attempt(2))
	books.giveBackPlan("uid", books.attempt(3), "p1", true)
	books.giveBackPlan("uid", books.attempt(5), "p2", true)
	books.giveBack("uid", books.attempt(6))
	books.giveBackPlan("uid", books.attempt(4), "p3", true)
	var told []string
	for _, ending := range books.unacknowledged() {
		told = append(told, fmt.Sprintf("%d %s", ending.GetAttempt().GetNumber(), ending.GetEndedPlan()))
	}
	if want := []string{"3 p1", "4 p3", "5 p2", "6 "}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestANewSessionIsNewerThanAllThatTheServiceKnows(t *testing.T) {
	service := newFakeService(abc...)
	ahead := time.Now().Add(time.Hour).UnixNano()
	service.newestSession, service.filter = ahead, service.feasible(0)
	b := connected(t, service, nil)
	// The first cycle may have begun before the service was asked.
	b.preFilter(gpuPod("p", 1), nodesNamed(abc...))
	state, _, got := b.preFilter(gpuPod("p", 1), nodesNamed(abc...))
	wantStatus(t, got, fwk.Success, "")
	if session := readCycle(state).attempt.GetSession(); session != ahead+1 {
		t.Errorf("the session is %d, want %d", session, ahead+1)
	}
}

func TestASessionThatWasSupersededStaysSo(t *testing.T) {
	books := newBooks(nil, nil, 5, "host")
	books.outrank(3)
	books.outrank(9)
	if session := books.newest().GetSession(); session != 5 {
		t.Errorf("the session is %d, want 5", session)
	}
}

func TestResyncListsWhatIsHeld(t *testing.T) {
	service := newFakeService(abc...)
	b, state, pod := reserved(t, service)
	number := readCycle(state).attempt.GetNumber()
	statement := b.plugin.link.books.statement()
	if held := statement.GetHeld(); len(held) != 1 || held[0].GetPod().GetUid() != string(pod.UID) || held[0].GetAttempt() != number ||
		held[0].GetNodeName() != "a" || held[0].GetGpus() != `{"main":["GPU-1"]}` || held[0].GetDoubtful() {
		t.Errorf("held: %v", held)
	}
	if statement.GetAttempt().GetNumber() != number || statement.GetShimVersion() != Version {
		t.Errorf("got %v", statement)
	}

	// A cycle that has not come to Reserve yet may be answered after this statement was written.
	b.preFilter(gpuPod("q", 1), nodesNamed(abc...))
	if got := b.plugin.link.books.statement().GetAttempt().GetNumber(); got != number {
		t.Errorf("the statement speaks for attempt %d, want %d", got, number)
	}

	bound := pod.DeepCopy()
	bound.Spec.NodeName = "a"
	b.handle.see(t, bound)
	// A service that started anew may not have seen it yet: it is told once.
	told := b.plugin.link.books.statement().GetHeld()
	if len(told) != 1 {
		t.Errorf("told after the scheduler saw it bound: %v", told)
	}
	b.plugin.link.books.forgetBound(told)
	if held := b.plugin.link.books.statement().GetHeld(); len(held) != 0 {
		t.Errorf("held after the service was told: %v", held)
	}
}

func TestTheFirstResyncCarriesAValidAttempt(t *testing.T) {
	statement := newBooks(nil, nil, 42, "host").statement()
	if a := statement.GetAttempt(); a.GetNumber() == 0 || a.GetSession() != 42 || a.GetHost() != "host" {
		t.Errorf("got %v", a)
	}
}
