package gputopology

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

var abc = []string{"a", "b", "c"}

func TestPodsWithoutGPUsCostNoCall(t *testing.T) {
	service := newFakeService(abc...)
	b := connected(t, service, nil)
	for name, pod := range map[string]*v1.Pod{"no request": plainPod("p"), "request of 0": gpuPod("z", 0)} {
		t.Run(name, func(t *testing.T) {
			state, _, got := b.preFilter(pod, nodesNamed(abc...))
			wantStatus(t, got, fwk.Skip, "")
			if got := b.plugin.Filter(b.ctx, state, pod, nodeNamed("a")); !got.IsSuccess() {
				t.Errorf("Filter: %v", got)
			}
			wantStatus(t, b.plugin.PreScore(b.ctx, state, pod, nodesNamed(abc...)), fwk.Skip, "")
			if got := b.plugin.Reserve(b.ctx, state, pod, "a"); !got.IsSuccess() {
				t.Errorf("Reserve: %v", got)
			}
			wantStatus(t, b.plugin.Bind(b.ctx, state, pod, "a"), fwk.Skip, "")
			b.plugin.Unreserve(b.ctx, state, pod, "a")
		})
	}
	service.do(func() {
		delete(service.calls, "Nodes")
		if len(service.calls) > 0 || len(service.unreserves) > 0 {
			t.Errorf("calls: %v", service.calls)
		}
	})
}

func TestPreFilterNamesTheCandidates(t *testing.T) {
	service := newFakeService(abc...)
	var asked *pb.FilterRequest
	service.filter = func(request *pb.FilterRequest) (*pb.FilterResponse, error) {
		asked = request
		return service.accepting(2, 0), nil
	}
	b := connected(t, service, nil)
	pod := gpuPod("p", 2)
	state, result, got := b.preFilter(pod, []fwk.NodeInfo{nodeNamed("a"), nodeNamed("b", cordoned), nodeNamed("c")})
	wantStatus(t, got, fwk.Success, "")
	if !result.NodeNames.Equal(sets.New("a", "c")) {
		t.Errorf("candidates are %v", sets.List(result.NodeNames))
	}
	if asked.GetEligible().GetEpoch() != 7 || !slices.Equal(asked.GetEligible().GetBitmap(), bitmapOf(3, 0, 2)) {
		t.Errorf("eligible are %v", asked.GetEligible())
	}
	if asked.GetPod().GetUid() != string(pod.UID) || asked.GetAttempt().GetNumber() < 2 || asked.GetAttempt().GetSession() == 0 || asked.GetAttempt().GetHost() == "" {
		t.Errorf("asked about %v", asked)
	}
	for name, want := range map[string]int64{"c": 100, "a": 99, "b": 0, "unknown": 0} {
		if score, got := b.plugin.Score(b.ctx, state, pod, nodeNamed(name)); score != want || !got.IsSuccess() {
			t.Errorf("score of %s is %d, want %d (%v)", name, score, want, got)
		}
	}
	wantStatus(t, b.plugin.PreScore(b.ctx, state, pod, nodesNamed("a", "c")), fwk.Success, "")
	if service.count("Score") != 0 {
		t.Error("a narrow cycle called Score")
	}
}

func TestFilterRepeatsTheVerdict(t *testing.T) {
	service := newFakeService(abc...)
	service.filter = func(*pb.FilterRequest) (*pb.FilterResponse, error) {
		answer := service.accepting(0)
		answer.Unresolvable = bitmapOf(3, 2)
		return answer, nil
	}
	b := connected(t, service, nil)
	pod := gpuPod("p", 2)
	state, _, _ := b.preFilter(pod, nodesNamed(abc...))
	for name, test := range map[string]struct {
		node    string
		code    fwk.Code
		message string
	}{
		"feasible":     {node: "a", code: fwk.Success},
		"not free":     {node: "b", code: fwk.Unschedulable, message: "node(s) lack the free GPUs that the pod asks for"},
		"not possible": {node: "c", code: fwk.UnschedulableAndUnresolvable, message: "node(s) cannot have the GPUs that the pod asks for"},
		"unknown":      {node: "z", code: fwk.UnschedulableAndUnresolvable, message: "node(s) not known to the GPU topology service yet"},
	} {
		t.Run(name, func(t *testing.T) {
			wantStatus(t, b.plugin.Filter(b.ctx, state, pod, nodeNamed(test.node)), test.code, test.message)
			wantStatus(t, b.plugin.Filter(b.ctx, state.Clone(), pod, nodeNamed(test.node)), test.code, test.message)
		})
	}
	if service.count("Filter") != 1 {
		t.Errorf("%d Filter calls", service.count("Filter"))
	}
}

func TestNominatedNodeIsACandidateIfFeasible(t *testing.T) {
	service := newFakeService(abc...)
	service.filter = func(*pb.FilterRequest) (*pb.FilterResponse, error) {
		answer := service.accepting(0)
		answer.Feasible = bitmapOf(3, 0, 1)
		return answer, nil
	}
	b := connected(t, service, nil)
	for nominated, want := range map[string]sets.Set[string]{"": sets.New("a"), "b": sets.New("a", "b"), "c": sets.New("a")} {
		pod := gpuPod("p", 1)
		pod.Status.NominatedNodeName = nominated
		if _, result, _ := b.preFilter(pod, nodesNamed(abc...)); !result.NodeNames.Equal(want) {
			t.Errorf("with %q nominated: %v, want %v", nominated, sets.List(result.NodeNames), sets.List(want))
		}
	}
}

func TestPreFilterVerdicts(t *testing.T) {
	for name, test := range map[string]struct {
		code    pb.Verdict_Code
		reason  string
		want    fwk.Code
		message string
	}{
		"unschedulable":         {code: pb.Verdict_CODE_UNSCHEDULABLE, reason: "2 GPUs short", want: fwk.Unschedulable, message: "2 GPUs short"},
		"unresolvable":          {code: pb.Verdict_CODE_UNRESOLVABLE, reason: "9 GPUs on one node", want: fwk.UnschedulableAndUnresolvable, message: "9 GPUs on one node"},
		"without a reason":      {code: pb.Verdict_CODE_UNSCHEDULABLE, want: fwk.Unschedulable, message: reasonNoGPUs},
		"retry":                 {code: pb.Verdict_CODE_RETRY, reason: "stale attempt", want: fwk.Error, message: "stale attempt"},
		"no code":               {code: pb.Verdict_CODE_UNSPECIFIED, want: fwk.Error, message: "the GPU topology service on SOCKET answered Filter with the verdict code 0: run the same version of service and plugin"},
		"a code of the future":  {code: 99, want: fwk.Error, message: "the GPU topology service on SOCKET answered Filter with the verdict code 99: run the same version of service and plugin"},
		"OK without candidates": {code: pb.Verdict_CODE_OK, want: fwk.Error, message: "the GPU topology service on SOCKET answered Filter with a verdict that names no known node: run the same version of service and plugin"},
	} {
		t.Run(name, func(t *testing.T) {
			service := newFakeService(abc...)
			service.filter = service.refusing(test.code, test.reason, 1)
			b := connected(t, service, nil)
			pod := gpuPod("p", 9)
			state, result, got := b.preFilter(pod, nodesNamed(abc...))
			wantStatus(t, got, test.want, strings.ReplaceAll(test.message, "SOCKET", b.plugin.args.Endpoint))
			if result != nil {
				t.Errorf("candidates %v", result.NodeNames)
			}
			if test.want == fwk.Error {
				return
			}
			// Other plugins that preempt come next: they must learn nothing to evict for, and be stopped.
			wantStatus(t, b.plugin.Filter(b.ctx, state.Clone(), pod, nodeNamed("a")), fwk.Unschedulable, reasonNotFree)
			_, got = b.plugin.PostFilter(b.ctx, state, pod, statuses{})
			wantStatus(t, got, fwk.UnschedulableAndUnresolvable, "")
		})
	}
}

func TestPodGroupsAreRefusedWithAReason(t *testing.T) {
	b := connected(t, newFakeService(abc...), nil)
	pod := gpuPod("p", 1)
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To("g")}
	_, _, got := b.preFilter(pod, nodesNamed(abc...))
	wantStatus(t, got, fwk.UnschedulableAndUnresolvable, reasonSchedulingGroup)
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	_, _, got = b.preFilter(pod, nodesNamed(abc...))
	wantStatus(t, got, fwk.Skip, "")
}

func TestAnotherEpochIsFetchedAndAskedOnceMore(t *testing.T) {
	service := newFakeService(abc...)
	service.filter = func(request *pb.FilterRequest) (*pb.FilterResponse, error) {
		service.mu.Lock()
		epoch := service.epoch
		service.mu.Unlock()
		if request.GetEligible().GetEpoch() != epoch {
			return &pb.FilterResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_RETRY, Reason: "another table"}, Epoch: epoch}, nil
		}
		return service.accepting(0), nil
	}
	b := connected(t, service, nil)
	service.do(func() { service.epoch, service.names = 8, []string{"c", "b"} })
	state, result, got := b.preFilter(gpuPod("p", 1), nodesNamed(abc...))
	wantStatus(t, got, fwk.Success, "")
	if !result.NodeNames.Equal(sets.New("c")) || service.count("Filter") != 2 {
		t.Errorf("candidates %v after %d calls", sets.List(result.NodeNames), service.count("Filter"))
	}
	if readCycle(state).verdict.table.epoch != 8 {
		t.Error("the verdict is kept with the wrong table")
	}
}

func TestATableThatNeverSettlesIsAnError(t *testing.T) {
	service := newFakeService(abc...)
	service.filter = func(request *pb.FilterRequest) (*pb.FilterResponse, error) {
		service.do(func() { service.epoch++ })
		return &pb.FilterResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_RETRY}, Epoch: service.epoch}, nil
	}
	b := connected(t, service, nil)
	_, _, got := b.preFilter(gpuPod("p", 1), nodesNamed(abc...))
	wantStatus(t, got, fwk.Error, errTableMoving.Error())
}

func TestErrorsOfTheServiceNeverParkAPod(t *testing.T) {
	for code, want := range map[codes.Code]string{
		codes.Unavailable: "the GPU topology service on SOCKET does not answer: " + remedyUnavailable,
		codes.Internal:    "the GPU topology service on SOCKET failed to answer Filter (Internal): see its log",
	} {
		t.Run(code.String(), func(t *testing.T) {
			service := newFakeService(abc...)
			b := connected(t, service, nil)
			for attempt := range 2 {
				service.do(func() {
					service.filter = func(*pb.FilterRequest) (*pb.FilterResponse, error) {
						return nil, status.Error(code, fmt.Sprintf("attempt %d", attempt))
					}
				})
				_, _, got := b.preFilter(gpuPod("p", 1), nodesNamed(abc...))
				wantStatus(t, got, fwk.Error, strings.ReplaceAll(want, "SOCKET", b.plugin.args.Endpoint))
			}
		})
	}
}

func TestFallbackCountsGPUsAndSaysSo(t *testing.T) {
	b := newTestBench(t, map[string]string{"onUnavailable": "fallback"})
	api := recordBinding(b.api)
	pod := gpuPod("p", 1)
	pod.Annotations = map[string]string{annotationGPUs: `{"main":["index:0"]}`, annotationPlacement: "best", "mine": "kept"}
	state, result, got := b.preFilter(pod, nodesNamed(abc...))
	wantStatus(t, got, fwk.Success, "")
	if !result.AllNodes() {
		t.Errorf("candidates %v", result.NodeNames)
	}
	wantStatus(t, b.plugin.Filter(b.ctx, state, pod, nodeNamed("a")), fwk.Success, "")
	wantStatus(t, b.plugin.PreScore(b.ctx, state, pod, nodesNamed(abc...)), fwk.Skip, "")
	wantStatus(t, b.plugin.Reserve(b.ctx, state, pod, "a"), fwk.Success, "")
	wantStatus(t, b.plugin.Bind(b.ctx, state, pod, "a"), fwk.Success, "")
	binding := receive(t, api, "the Binding")
	if !strings.Contains(binding.Annotations[annotationPlacement], `"advisory":true`) {
		t.Errorf("annotations are %v", binding.Annotations)
	}
	// What the pod's maker wrote under our keys must not count.
	if gpus, written := binding.Annotations[annotationGPUs]; !written || gpus != "" || len(binding.Annotations) != 2 {
		t.Errorf("annotations are %v", binding.Annotations)
	}
}

func TestFallbackIsForAServiceThatIsAwayOnly(t *testing.T) {
	service := newFakeService(abc...)
	service.filter = service.refusing(pb.Verdict_CODE_RETRY, "not now")
	b := connected(t, service, map[string]string{"onUnavailable": "fallback"})
	_, _, got := b.preFilter(gpuPod("p", 1), nodesNamed(abc...))
	wantStatus(t, got, fwk.Error, "not now")
}

func BenchmarkPreFilter(b *testing.B) {
	for _, count := range []int{1000, 5000} {
		b.Run(fmt.Sprintf("nodes=%d/breaker=open", count), func(b *testing.B) {
			names := make([]string, count)
			for i := range names {
				names[i] = fmt.Sprintf("node-%d", i)
			}
			nodes := nodesNamed(names...)
			plugin := awayPlugin(b)
			pod := gpuPod("p", 1)
			b.ReportAllocs()
			for b.Loop() {
				plugin.PreFilter(b.Context(), newState(), pod, nodes)
			}
		})
	}
}
