package gputopology

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

const preemptorPriority = 100

// urgentPod asks for two GPUs, and comes before all that runs.
func urgentPod() *v1.Pod {
	pod := gpuPod("urgent", 2)
	pod.Spec.Priority = ptr.To[int32](preemptorPriority)
	return pod
}

// runningPod is on the node, with one CPU of the four that each node has.
func runningPod(name, node string, priority int32, change ...func(*v1.Pod)) *v1.Pod {
	pod := plainPod(name)
	pod.Spec.NodeName, pod.Spec.Priority = node, &priority
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func leaving(pod *v1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.Now()) }

func preempted(pod *v1.Pod) {
	leaving(pod)
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler}}
}

// inGroup makes the pod a member of a group that runs.
func inGroup(pod *v1.Pod) *v1.Pod { return memberOf("running", pod) }

// preemptBench is a plugin whose service refuses every pod, with what runs on the nodes a, b and c.
type preemptBench struct {
	*testBench
	mu    sync.Mutex
	asked []*pb.PreemptRequest
}

func newPreemptBench(t *testing.T, running ...*v1.Pod) *preemptBench {
	t.Helper()
	service := newFakeService(abc...)
	service.filter = service.refusing(pb.Verdict_CODE_UNSCHEDULABLE, "full")
	b := &preemptBench{testBench: connected(t, service, nil)}
	b.run(abc, running...)
	return b
}

// run lets the pods run on the nodes, in the scheduler's own view.
func (b *preemptBench) run(names []string, running ...*v1.Pod) {
	b.handle.nodes = nil
	for _, name := range names {
		info := framework.NewNodeInfo()
		for _, pod := range running {
			if pod.Spec.NodeName == name {
				podInfo, err := framework.NewPodInfo(pod)
				if err != nil {
					b.t.Fatal(err)
				}
				info.AddPodInfo(podInfo)
			}
		}
		info.SetNode(nodeNamed(name).node)
		b.handle.nodes = append(b.handle.nodes, info)
	}
}

// propose lets the service answer by the first of the nodes that it is asked about; it names their victims.
func (b *preemptBench) propose(victims map[uint32][]string) {
	b.service.do(func() {
		b.service.preempt = func(request *pb.PreemptRequest) (*pb.PreemptResponse, error) {
			b.mu.Lock()
			b.asked = append(b.asked, request)
			b.mu.Unlock()
			for node := range uint32(64) {
				if uids, possible := victims[node]; possible && bitmap(request.GetNodes().GetBitmap()).has(node) {
					return &pb.PreemptResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_OK}, Node: node, VictimUids: uids, Gpus: []string{"GPU-1", "GPU-2"}}, nil
				}
			}
			return &pb.PreemptResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_UNSCHEDULABLE, Reason: "no"}}, nil
		}
	})
}

// needCPU makes another plugin refuse nodes that lack this many CPUs of four.
func (b *preemptBench) needCPU(cpus int64) {
	b.handle.others = func(node fwk.NodeInfo) *fwk.Status {
		if node.GetRequested().GetMilliCPU() > (4-cpus)*1000 {
			return fwk.NewStatus(fwk.Unschedulable, "Insufficient cpu")
		}
		return nil
	}
}

func ofWeb(pod *v1.Pod) { pod.Labels = map[string]string{"app": "web"} }

// allowOneDisruption lets a budget allow that one of the pods is evicted that are ofWeb.
func (b *preemptBench) allowOneDisruption() {
	b.t.Helper()
	budget := &policy.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"},
		Spec:       policy.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policy.PodDisruptionBudgetStatus{DisruptionsAllowed: 1},
	}
	if err := b.handle.factory.Policy().V1().PodDisruptionBudgets().Informer().GetIndexer().Add(budget); err != nil {
		b.t.Fatal(err)
	}
}

func (b *preemptBench) postFilter(pod *v1.Pod) (*fwk.PostFilterResult, *fwk.Status) {
	b.t.Helper()
	b.handle.see(b.t, pod)
	state, _, got := b.preFilter(pod, b.handle.nodes)
	if got.Code() != fwk.Unschedulable {
		b.t.Fatalf("PreFilter: %v", got)
	}
	return b.plugin.PostFilter(b.ctx, state, pod, framework.NewNodeToStatus(map[string]*fwk.Status{}, got))
}

func (b *preemptBench) wantNominated(result *fwk.PostFilterResult, want string) {
	b.t.Helper()
	if result == nil || result.Mode() != fwk.ModeOverride || result.NominatedNodeName != want {
		b.t.Errorf("the result is %v, want %q nominated", result, want)
	}
}

func (b *preemptBench) wantEvicted(want ...string) {
	b.t.Helper()
	var evicted []string
	for range want {
		evicted = append(evicted, receive(b.t, b.api.evicted, "an eviction"))
	}
	eventually(b.t, "the end of the evictions", func() bool { return b.plugin.PreEnqueue(b.ctx, urgentPod()).IsSuccess() })
	slices.Sort(evicted)
	if !slices.Equal(evicted, want) || len(b.api.evicted) > 0 {
		b.t.Errorf("evicted %v, want %v", evicted, want)
	}
}

func (b *preemptBench) wantAskedAbout(want ...[]uint32) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.asked) != len(want) {
		b.t.Fatalf("asked %d times, want %d", len(b.asked), len(want))
	}
	for i, request := range b.asked {
		if !slices.Equal(request.GetNodes().GetBitmap(), bitmapOf(3, want[i]...)) {
			b.t.Errorf("asked about %08b the %d. time, want %v", request.GetNodes().GetBitmap(), i+1, want[i])
		}
	}
}

func (b *preemptBench) nominations() map[string]*pb.Held {
	held := map[string]*pb.Held{}
	for _, h := range b.plugin.link.books.statement().GetHeld() {
		if h.GetNominated() {
			held[h.GetPod().GetUid()] = h
		}
	}
	return held
}

func TestThePodsThatTheServiceNamesAreEvictedAndNoOthers(t *testing.T) {
	b := newPreemptBench(t, runningPod("a1", "a", 0), runningPod("b1", "b", 0), runningPod("b2", "b", 1), runningPod("b3", "b", 1))
	b.propose(map[uint32][]string{1: {"uid-of-b2", "uid-of-b3"}})
	pod := urgentPod()
	result, got := b.postFilter(pod)
	text := "preempting 2 pods on node b for 2 GPUs"
	wantStatus(t, got, fwk.Success, text)
	b.wantNominated(result, "b")
	b.wantEvicted("b2", "b3")
	if told := receive(t, b.told.Events, "an Event"); told != "Normal Preempting "+text {
		t.Errorf("told %q", told)
	}
	// Node c has nobody who could go.
	b.wantAskedAbout([]uint32{0, 1})
	request := b.asked[0]
	if request.GetPod().GetPriority() != preemptorPriority || request.GetNodes().GetEpoch() != 7 || request.GetNodes().GetKnown() != 3 ||
		len(request.GetProtectedUids()) > 0 {
		t.Errorf("asked %v", request)
	}
	held := b.nominations()[string(pod.UID)]
	if held.GetNodeName() != "b" || held.GetGpus() != `{"":["GPU-1","GPU-2"]}` || held.GetAttempt() != request.GetAttempt().GetNumber() || held.GetDoubtful() {
		t.Errorf("Resync carries %v", held)
	}
}

func TestWhatLacksCPUTooEvictsWhoHasIt(t *testing.T) {
	b := newPreemptBench(t, runningPod("gpus", "a", 1), runningPod("cheap", "a", 0), runningPod("dear", "a", 2), runningPod("higher", "a", 200))
	b.propose(map[uint32][]string{0: {"uid-of-gpus"}})
	b.needCPU(2)
	result, got := b.postFilter(urgentPod())
	wantStatus(t, got, fwk.Success, "preempting 2 pods on node a for 2 GPUs")
	b.wantNominated(result, "a")
	b.wantEvicted("cheap", "gpus")
}

func TestOfAGroupAllMembersAreEvictedWhereverTheyAre(t *testing.T) {
	b := newPreemptBench(t, inGroup(runningPod("a1", "a", 0)), inGroup(runningPod("b1", "b", 0)), inGroup(runningPod("c1", "c", 0)),
		inGroup(runningPod("c2", "c", 0, leaving)), runningPod("b2", "b", 0))
	// One of them is gone already, and one is on its way.
	b.propose(map[uint32][]string{0: {"uid-of-a1", "uid-of-b1", "uid-of-c1", "uid-of-c2", "uid-of-gone"}})
	result, got := b.postFilter(urgentPod())
	text := "preempting 1 pod on node a and 2 pods of the same groups on other nodes for 2 GPUs"
	wantStatus(t, got, fwk.Success, text)
	b.wantNominated(result, "a")
	b.wantEvicted("a1", "b1", "c1")
	if told := receive(t, b.told.Events, "an Event"); told != "Normal Preempting "+text {
		t.Errorf("told %q", told)
	}
}

func TestAGroupIsEvictedToItsEndThoughItsMemberOnTheNodeHasLeft(t *testing.T) {
	b := newPreemptBench(t, inGroup(runningPod("a1", "a", 0, preempted)), inGroup(runningPod("b1", "b", 0)))
	b.propose(map[uint32][]string{0: {"uid-of-a1", "uid-of-b1"}})
	result, got := b.postFilter(urgentPod())
	wantStatus(t, got, fwk.Success, "preempting 0 pods on node a and 1 pod of the same groups on other nodes for 2 GPUs")
	b.wantNominated(result, "a")
	b.wantEvicted("b1")
}

func TestAGroupWithAMemberOfNoLowerPriorityStays(t *testing.T) {
	b := newPreemptBench(t, inGroup(runningPod("a1", "a", 0)), inGroup(runningPod("b1", "b", preemptorPriority)), runningPod("b2", "b", 1))
	b.propose(map[uint32][]string{0: {"uid-of-a1", "uid-of-b1"}, 1: {"uid-of-b2"}})
	result, _ := b.postFilter(urgentPod())
	b.wantNominated(result, "b")
	b.wantEvicted("b2")
}

func TestMembersOfAGroupThatIsNotNamedStayThoughTheyHaveTheCPU(t *testing.T) {
	running := []*v1.Pod{runningPod("gpus", "a", 0), inGroup(runningPod("member", "a", 0)), runningPod("single", "a", 1)}
	for name, test := range map[string]struct {
		cpus    int64
		evicted []string
	}{
		"others have enough of it": {cpus: 3, evicted: []string{"gpus", "single"}},
		"others have too little":   {cpus: 4},
	} {
		t.Run(name, func(t *testing.T) {
			b := newPreemptBench(t, running...)
			b.propose(map[uint32][]string{0: {"uid-of-gpus"}})
			b.needCPU(test.cpus)
			result, _ := b.postFilter(urgentPod())
			if test.evicted == nil {
				b.wantNominated(result, "")
			} else {
				b.wantNominated(result, "a")
			}
			b.wantEvicted(test.evicted...)
		})
	}
}

func TestNodesWhereOtherPluginsSeeNoHelpAreNotAskedAbout(t *testing.T) {
	b := newPreemptBench(t, runningPod("a1", "a", 0), runningPod("a2", "a", 200), runningPod("a3", "a", 200), runningPod("b1", "b", 0), runningPod("c1", "c", 0))
	// Of node a two CPUs stay taken; node c has too few GPUs at all.
	b.needCPU(3)
	b.service.do(func() { b.service.filter = b.service.refusing(pb.Verdict_CODE_UNSCHEDULABLE, "full", 2) })
	b.propose(nil)
	result, got := b.postFilter(urgentPod())
	wantStatus(t, got, fwk.UnschedulableAndUnresolvable, "")
	b.wantNominated(result, "")
	b.wantAskedAbout([]uint32{1})
	if len(b.told.Events) > 0 {
		t.Errorf("told %q", <-b.told.Events)
	}
}

func TestNodesThatDoNotAdmitThePodAreNotAskedAbout(t *testing.T) {
	b := newPreemptBench(t, runningPod("a1", "a", 0), runningPod("b1", "b", 0))
	b.handle.nodes[0].SetNode(nodeNamed("a", cordoned).node)
	b.propose(nil)
	b.postFilter(urgentPod())
	b.wantAskedAbout([]uint32{1})
}

func TestAProposalThatDoesNotDoIsFollowedByOneForAnotherNode(t *testing.T) {
	b := newPreemptBench(t, runningPod("a1", "a", 0), runningPod("mighty", "a", 200), runningPod("b1", "b", 0))
	// All of the named victims have to go, and one of them may not.
	b.propose(map[uint32][]string{0: {"uid-of-a1", "uid-of-mighty"}, 1: {"uid-of-b1"}})
	result, got := b.postFilter(urgentPod())
	wantStatus(t, got, fwk.Success, "preempting 1 pod on node b for 2 GPUs")
	b.wantNominated(result, "b")
	b.wantEvicted("b1")
	b.wantAskedAbout([]uint32{0, 1}, []uint32{1})
	if held := b.nominations(); len(held) != 1 || held["uid-of-urgent"].GetNodeName() != "b" {
		t.Errorf("Resync carries %v", held)
	}
}

func TestWhatIsHeldIsLetGoWhenNoProposalDoes(t *testing.T) {
	b := newPreemptBench(t)
	var names []string
	var running []*v1.Pod
	victims := map[uint32][]string{}
	for i := range uint32(12) {
		name := fmt.Sprintf("n%d", i)
		names = append(names, name)
		running = append(running, runningPod("low-"+name, name, 0), runningPod("mighty-"+name, name, 200))
		victims[i] = []string{"uid-of-mighty-" + name}
	}
	b.run(names, running...)
	b.service.do(func() { b.service.epoch, b.service.names = 8, names })
	if _, err := b.plugin.link.tables.fetch(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.propose(victims)
	result, got := b.postFilter(urgentPod())
	wantStatus(t, got, fwk.UnschedulableAndUnresolvable, "")
	b.wantNominated(result, "")
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.asked) != proposalsMax+1 {
		t.Fatalf("asked %d times", len(b.asked))
	}
	if last := b.asked[proposalsMax].GetNodes(); slices.ContainsFunc(last.GetBitmap(), func(bits byte) bool { return bits != 0 }) {
		t.Errorf("asked about %v at last, want the empty set", last)
	}
	if held := b.nominations(); len(held) > 0 || len(b.api.evicted) > 0 {
		t.Errorf("held %v, %d evicted", held, len(b.api.evicted))
	}
}

func TestPodsThatMayNotPreemptCostNoCall(t *testing.T) {
	for name, test := range map[string]struct {
		running *v1.Pod
		change  func(*v1.Pod)
	}{
		"policy Never":             {running: runningPod("a1", "a", 0), change: func(p *v1.Pod) { p.Spec.PreemptionPolicy = ptr.To(v1.PreemptNever) }},
		"victims still end":        {running: runningPod("a1", "a", 0, preempted), change: func(p *v1.Pod) { p.Status.NominatedNodeName = "a" }},
		"nobody has less priority": {running: runningPod("a1", "a", preemptorPriority), change: func(*v1.Pod) {}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newPreemptBench(t, test.running)
			b.propose(map[uint32][]string{0: {"uid-of-a1"}})
			pod := urgentPod()
			test.change(pod)
			_, got := b.postFilter(pod)
			wantStatus(t, got, fwk.UnschedulableAndUnresolvable, "")
			if count := b.service.count("Preempt"); count > 0 {
				t.Errorf("%d calls", count)
			}
		})
	}
}

func TestAClearedNominationDoesNotPreemptAgainWhileTheVictimsEnd(t *testing.T) {
	victim := runningPod("a1", "a", 0)
	b := newPreemptBench(t, victim)
	b.propose(map[uint32][]string{0: {"uid-of-a1"}})
	pod := urgentPod()
	b.postFilter(pod)
	b.wantEvicted("a1")
	b.run(abc, runningPod("a1", "a", 0, preempted), runningPod("b1", "b", 0))
	result, got := b.postFilter(pod)
	wantStatus(t, got, fwk.UnschedulableAndUnresolvable, "")
	if result != nil || b.service.count("Preempt") != 1 {
		t.Errorf("result %v after %d calls", result, b.service.count("Preempt"))
	}
}

func TestAPodThatNeedsNobodyEvictedIsNominated(t *testing.T) {
	for name, test := range map[string]struct {
		running []*v1.Pod
		victims []string
	}{
		"the pods that have the GPUs leave": {running: []*v1.Pod{runningPod("gone", "a", 200, leaving), runningPod("stays", "a", 0)}},
		"the named victim leaves":           {running: []*v1.Pod{runningPod("gone", "a", 0, leaving), runningPod("stays", "a", 0)}, victims: []string{"uid-of-gone"}},
		"the named victim left":             {running: []*v1.Pod{runningPod("stays", "a", 0)}, victims: []string{"uid-of-gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newPreemptBench(t, test.running...)
			b.propose(map[uint32][]string{0: test.victims})
			b.needCPU(3)
			result, got := b.postFilter(urgentPod())
			wantStatus(t, got, fwk.Success, "")
			b.wantNominated(result, "a")
			b.wantEvicted()
			if len(b.told.Events) > 0 {
				t.Errorf("told %q", <-b.told.Events)
			}
		})
	}
}

func TestTheNodeWhereGPUsAreHeldIsAskedAboutAgainThoughNobodyIsLeftThere(t *testing.T) {
	b := newPreemptBench(t, runningPod("a1", "a", 0), runningPod("b1", "b", 0))
	b.propose(map[uint32][]string{0: {"uid-of-a1"}})
	pod := urgentPod()
	b.postFilter(pod)
	b.wantEvicted("a1")
	b.run(abc, runningPod("b1", "b", 0))
	result, got := b.postFilter(pod)
	wantStatus(t, got, fwk.Success, "")
	b.wantNominated(result, "a")
	b.wantAskedAbout([]uint32{0, 1}, []uint32{0, 1})
	b.wantEvicted()

	// It is let go when the node is out of the question.
	b.handle.nodes[0].SetNode(nodeNamed("a", cordoned).node)
	b.handle.nodes[1] = nodeNamed("b")
	b.asked = nil
	result, _ = b.postFilter(pod)
	b.wantNominated(result, "")
	b.wantAskedAbout([]uint32{})
	if held := b.nominations(); len(held) > 0 {
		t.Errorf("held %v", held)
	}
}

func TestPodsThatABudgetProtectsAreNamed(t *testing.T) {
	b := newPreemptBench(t, runningPod("a2", "a", 2, ofWeb), runningPod("a1", "a", 1, ofWeb), runningPod("a3", "a", 3),
		runningPod("b1", "b", 1, ofWeb), runningPod("b0", "b", 0, ofWeb, leaving), runningPod("c1", "c", 200, ofWeb))
	b.allowOneDisruption()
	b.propose(nil)
	b.postFilter(urgentPod())
	// The one disruption of each node is for its least important pod.
	if got := b.asked[0].GetProtectedUids(); !slices.Equal(got, []string{"uid-of-a2"}) {
		t.Errorf("protected are %v", got)
	}
}

func TestPreemptionInWideCycles(t *testing.T) {
	b := newPreemptBench(t, runningPod("a1", "a", 0), runningPod("b1", "b", 0), runningPod("c1", "c", 0))
	b.service.do(func() { b.service.filter = b.service.feasible(0, 2) })
	b.propose(map[uint32][]string{0: nil, 1: {"uid-of-b1"}})
	b.needCPU(4)
	pod := urgentPod()
	b.handle.see(t, pod)
	state, _, _ := b.preFilter(pod, b.handle.nodes)
	b.plugin.PostFilter(b.ctx, state, pod, statuses{})
	state, _, _ = b.preFilter(pod, b.handle.nodes)
	receive(t, b.handle.woken, "the wide cycle")
	found := statuses{
		"a": fwk.NewStatus(fwk.Unschedulable, "Insufficient cpu"),
		"b": fwk.NewStatus(fwk.Unschedulable, reasonNotFree),
		"c": fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) had a volume conflict"),
	}
	result, got := b.plugin.PostFilter(b.ctx, state, pod, found)
	// Its GPUs are free: the victim is who has the CPU.
	wantStatus(t, got, fwk.Success, "preempting 1 pod on node a for 2 GPUs")
	b.wantNominated(result, "a")
	b.wantEvicted("a1")
	b.wantAskedAbout([]uint32{0, 1})

	b.propose(nil)
	_, got = b.plugin.PostFilter(b.ctx, state, pod, found)
	wantStatus(t, got, fwk.Unschedulable, "")
}

func TestACallThatComesToNothingLeavesThePodRefusedAndTheOthersAlone(t *testing.T) {
	for name, answer := range map[string]func(*pb.PreemptRequest) (*pb.PreemptResponse, error){
		"no answer": func(*pb.PreemptRequest) (*pb.PreemptResponse, error) {
			return nil, status.Error(codes.Unavailable, "away")
		},
		"an error": func(*pb.PreemptRequest) (*pb.PreemptResponse, error) { return nil, status.Error(codes.Internal, "bug") },
		"retry": func(*pb.PreemptRequest) (*pb.PreemptResponse, error) {
			return &pb.PreemptResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_RETRY}}, nil
		},
		"no verdict": func(*pb.PreemptRequest) (*pb.PreemptResponse, error) { return &pb.PreemptResponse{}, nil },
		"a node that was not asked about": func(*pb.PreemptRequest) (*pb.PreemptResponse, error) {
			return &pb.PreemptResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_OK}, Node: 2}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newPreemptBench(t, runningPod("a1", "a", 0))
			b.service.do(func() { b.service.preempt = answer })
			for _, name := range []string{"urgent", "another"} {
				pod := urgentPod()
				pod.Name, pod.UID = name, types.UID("uid-of-"+name)
				result, got := b.postFilter(pod)
				wantStatus(t, got, fwk.UnschedulableAndUnresolvable, "")
				if result != nil {
					t.Errorf("the nomination is changed to %v", result)
				}
			}
			if count := b.service.count("Preempt"); count != 1 {
				t.Errorf("%d calls though the first came to nothing", count)
			}
		})
	}
}

func TestPodsThatCouldNotPreemptAreTriedAgainAfterARest(t *testing.T) {
	for name, test := range map[string]struct{ wake bool }{"the service may answer then": {true}, "the service does not know the call": {false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				woken := make(activations, 4)
				l := &link{ctx: t.Context(), waiting: newWaiting(klog.Background(), woken)}
				l.waiting.enter(urgentPod())
				l.waiting.enter(plainPod("refused"))
				l.waiting.noteFailed("uid-of-urgent")
				for range 2 {
					l.restPreemption(test.wake)
				}
				time.Sleep(preemptionRest - time.Nanosecond)
				synctest.Wait()
				if !l.preemptionRests.Load() || len(woken) > 0 {
					t.Error("the rest is too short")
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if l.preemptionRests.Load() {
					t.Error("the rest does not end")
				}
				if test.wake != (len(woken) == 1) || test.wake && <-woken != "uid-of-urgent" {
					t.Errorf("%d pods woken", len(woken))
				}
				l.running.Wait()
			})
		})
	}
}

type activations chan types.UID

func (a activations) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	for _, pod := range pods {
		a <- pod.UID
	}
}

func TestPlainPodsPreemptAsWithoutThePlugin(t *testing.T) {
	b := newPreemptBench(t, runningPod("low", "a", 0), runningPod("lower", "a", -1), runningPod("b1", "b", 200))
	b.needCPU(3)
	pod := plainPod("urgent")
	pod.Spec.Priority = ptr.To[int32](preemptorPriority)
	b.handle.see(t, pod)
	state, _, got := b.preFilter(pod, b.handle.nodes)
	wantStatus(t, got, fwk.Skip, "")
	refused := framework.NewNodeToStatus(map[string]*fwk.Status{}, fwk.NewStatus(fwk.Unschedulable, "Insufficient cpu"))
	result, got := b.plugin.PostFilter(b.ctx, state, pod, refused)
	if !got.IsSuccess() {
		t.Fatalf("got %v", got)
	}
	b.wantNominated(result, "a")
	b.wantEvicted("lower")
	if b.service.count("Preempt") > 0 {
		t.Error("the service was asked")
	}
}

func TestPodsThatOnlyCountGPUsPreemptAsWithoutThePlugin(t *testing.T) {
	b := newTestBench(t, map[string]string{"onUnavailable": "fallback"})
	bench := &preemptBench{testBench: b}
	bench.run(abc, runningPod("low", "a", 0), runningPod("lower", "a", -1))
	bench.needCPU(3)
	pod := urgentPod()
	b.handle.see(t, pod)
	state, _, _ := b.preFilter(pod, b.handle.nodes)
	result, _ := b.plugin.PostFilter(b.ctx, state, pod, framework.NewNodeToStatus(map[string]*fwk.Status{}, fwk.NewStatus(fwk.Unschedulable)))
	bench.wantNominated(result, "a")
	bench.wantEvicted("lower")
}

func TestGPUPodsThatOtherPluginsRefusedAtOnceEvictNobody(t *testing.T) {
	b := newPreemptBench(t, runningPod("a1", "a", 0))
	pod := urgentPod()
	b.handle.see(t, pod)
	_, got := b.plugin.PostFilter(b.ctx, newState(), pod, framework.NewNodeToStatus(map[string]*fwk.Status{}, fwk.NewStatus(fwk.Unschedulable)))
	wantStatus(t, got, fwk.Unschedulable, "")
	if len(b.api.evicted) > 0 || b.service.count("Preempt") > 0 {
		t.Error("preempted")
	}
}

func TestThePreemptorIsHeldBackWhileItsVictimsAreEvicted(t *testing.T) {
	b := newPreemptBench(t, runningPod("a1", "a", 0))
	b.handle.see(t, b.handle.nodes[0].GetPods()[0].GetPod())
	b.propose(map[uint32][]string{0: {"uid-of-a1"}})
	b.api.evicted = make(chan string) // The API server does not answer before it is read.
	pod := urgentPod()
	b.postFilter(pod)
	if got := b.plugin.PreEnqueue(b.ctx, pod); got.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("before the eviction: %v", got)
	}
	receive(t, b.api.evicted, "the eviction")
	eventually(t, "the end of the eviction", func() bool { return b.plugin.PreEnqueue(b.ctx, pod).IsSuccess() })
}

func TestANominationOutlastsAReservationThatFails(t *testing.T) {
	b := newPreemptBench(t, runningPod("a1", "a", 0))
	b.propose(map[uint32][]string{0: {"uid-of-a1"}})
	pod := urgentPod()
	b.postFilter(pod)
	b.wantEvicted("a1")
	b.service.do(func() {
		b.service.filter, b.service.reserve = b.service.feasible(0), reserving(`{"main":["GPU-1","GPU-2"]}`)
	})
	state, _, _ := b.preFilter(pod, b.handle.nodes)
	wantStatus(t, b.plugin.Reserve(b.ctx, state, pod, "a"), fwk.Success, "")
	if held := b.plugin.link.books.statement().GetHeld(); len(held) != 1 || held[0].GetNominated() {
		t.Errorf("while it is reserved Resync carries %v", held)
	}
	b.plugin.Unreserve(b.ctx, state, pod, "a")
	if held := b.nominations(); len(held) != 1 {
		t.Errorf("after the failure Resync carries %v", held)
	}
	bound := pod.DeepCopy()
	bound.Spec.NodeName = "a"
	b.handle.see(t, bound)
	if held := b.nominations(); len(held) > 0 {
		t.Errorf("after the binding Resync carries %v", held)
	}
}

func TestANominationEndsAfterFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		factory := informers.NewSharedInformerFactory(kubernetes.New(nil), 0)
		pods := factory.Core().V1().Pods()
		if err := pods.Informer().GetIndexer().Add(urgentPod()); err != nil {
			t.Fatal(err)
		}
		books := newBooks(nil, pods.Lister(), 1, "host")
		c := &cycle{attempt: books.begin(), pod: describe(urgentPod(), []string{"nvidia.com/gpu"}, nil)}
		books.nominate(c, "a", nil)
		time.Sleep(3 * time.Minute)
		// Asking again about what is held already does not prolong it.
		books.nominate(c, "a", []string{"GPU-1"})
		if held := books.statement().GetHeld(); len(held) != 1 || held[0].GetGpus() != `{"":["GPU-1"]}` || books.nominatedNode("uid-of-urgent") != "a" {
			t.Errorf("held %v", held)
		}
		time.Sleep(2 * time.Minute)
		if books.nominatedNode("uid-of-urgent") != "" || len(books.statement().GetHeld()) > 0 {
			t.Error("held after five minutes")
		}
		books.nominate(c, "b", nil)
		if held := books.statement().GetHeld(); len(held) != 1 || held[0].GetGpus() != `{"":[]}` {
			t.Errorf("held %v", held)
		}
	})
}
