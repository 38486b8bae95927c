package gputopology

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

// vcudaPod has a container for each amount of units, named by it.
func vcudaPod(amounts ...string) *v1.Pod {
	pod := plainPod("p")
	pod.Spec.Containers = nil
	for _, amount := range amounts {
		pod.Spec.Containers = append(pod.Spec.Containers, asking("c"+amount, map[v1.ResourceName]string{vcudaCore: amount, "tencent.com/vcuda-memory": "30"}))
	}
	return pod
}

func TestAPodThatAsksForAPartOfAGPUIsLeftAloneAndThatIsToldOnce(t *testing.T) {
	inInit := vcudaPod("100")
	inInit.Spec.InitContainers = vcudaPod("30").Spec.Containers
	together := vcudaPod("200", "50")
	together.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = together.Spec.Containers[0].Resources.Requests[vcudaCore]
	inGroup := vcudaPod("50")
	inGroup.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To("g")}
	for name, test := range map[string]struct {
		pod  *v1.Pod
		says string
	}{
		"a part":                             {pod: vcudaPod("50"), says: "container c50 asks for 50 of tencent.com/vcuda-core, of which 100 are one GPU"},
		"one and a half":                     {pod: vcudaPod("150"), says: "c150 asks for 150"},
		"in an init container":               {pod: inInit, says: "c30 asks for 30"},
		"beside whole ones":                  {pod: together, says: "c50 asks for 50"},
		"of a group":                         {pod: memberOf("job", vcudaPod("50")), says: "c50 asks for 50"},
		"of a pod group of Kubernetes's own": {pod: inGroup, says: "c50 asks for 50"},
	} {
		t.Run(name, func(t *testing.T) {
			service := newFakeService(abc...)
			b := connected(t, service, nil)
			for range 2 { // Other plugins refuse it at first.
				_, _, got := b.preFilter(test.pod, nodesNamed(abc...))
				wantStatus(t, got, fwk.Skip, "")
			}
			state, _, _ := b.preFilter(test.pod, nodesNamed(abc...))
			wantStatus(t, b.plugin.Filter(b.ctx, state, test.pod, nodeNamed("a")), fwk.Success, "")
			wantStatus(t, b.plugin.Reserve(b.ctx, state, test.pod, "a"), fwk.Success, "")
			status, _ := b.plugin.Permit(b.ctx, state, test.pod, "a")
			wantStatus(t, status, fwk.Success, "")
			wantStatus(t, b.plugin.Bind(b.ctx, state, test.pod, "a"), fwk.Skip, "")
			b.plugin.PostBind(b.ctx, state, test.pod, "a")
			if told := receive(t, b.told.Events, "an Event"); !strings.HasPrefix(told, "Normal LeftAlone ") || !strings.Contains(told, test.says) {
				t.Errorf("told %q, want %q", told, test.says)
			}
			if len(b.told.Events) > 0 {
				t.Errorf("told also %q", <-b.told.Events)
			}
			if fragments, got := b.plugin.SignPod(b.ctx, test.pod); !got.IsSuccess() || fragments != nil {
				t.Errorf("signed as %v, %v", fragments, got)
			}
			if calls := service.count("Filter") + service.count("Plan") + service.count("Reserve"); calls > 0 {
				t.Errorf("%d calls", calls)
			}
		})
	}
}

func TestUnitsOfWholeGPUsAreCountedAsGPUs(t *testing.T) {
	service := newFakeService(abc...)
	var asked []uint32
	service.filter = func(request *pb.FilterRequest) (*pb.FilterResponse, error) {
		for _, container := range request.GetPod().GetContainers() {
			asked = append(asked, container.GetGpus())
		}
		return service.accepting(0), nil
	}
	b := connected(t, service, nil)
	pod := vcudaPod("200", "0", "100")
	state, _, got := b.preFilter(pod, nodesNamed(abc...))
	wantStatus(t, got, fwk.Success, "")
	if !slices.Equal(asked, []uint32{2, 1}) {
		t.Errorf("asked for %v GPUs", asked)
	}
	if _, got := b.plugin.SignPod(b.ctx, pod); got.Code() != fwk.Unschedulable {
		t.Errorf("signed: %v", got)
	}
	b.plugin.PostBind(b.ctx, state, pod, "a")
	b.plugin.PostBind(b.ctx, newState(), plainPod("plain"), "a")
	if len(b.told.Events) > 0 {
		t.Errorf("told %q", <-b.told.Events)
	}
}

func TestAPodThatAsksForAPartOfAGPUPreemptsAsWithoutThePlugin(t *testing.T) {
	b := newPreemptBench(t, runningPod("low", "a", 0), runningPod("lower", "a", -1))
	b.needCPU(3)
	pod := vcudaPod("50")
	pod.Spec.Priority = ptr.To[int32](preemptorPriority)
	b.handle.see(t, pod)
	state, _, _ := b.preFilter(pod, b.handle.nodes)
	refused := framework.NewNodeToStatus(map[string]*fwk.Status{}, fwk.NewStatus(fwk.Unschedulable, "Insufficient cpu"))
	result, _ := b.plugin.PostFilter(b.ctx, state, pod, refused)
	b.wantNominated(result, "a")
	b.wantEvicted("lower")
}
