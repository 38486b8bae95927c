package gputopology

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

func podInfo(t *testing.T, pod *v1.Pod) fwk.PodInfo {
	t.Helper()
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestFilterInADryRunPassesWhenAllVictimsAreGone(t *testing.T) {
	service := newFakeService(abc...)
	service.filter = service.refusing(pb.Verdict_CODE_UNSCHEDULABLE, "full")
	b := connected(t, service, nil)
	pod, extensions := urgentPod(), b.plugin.PreFilterExtensions()
	state, _, _ := b.preFilter(pod, nodesNamed(abc...))
	trial := tryingOut(state, &dryRun{node: "a", victims: []types.UID{"uid-of-v1", "uid-of-v2"}})
	filter := func(state fwk.CycleState, node string) fwk.Code {
		return b.plugin.Filter(b.ctx, state, pod, nodeNamed(node)).Code()
	}
	remove := func(state fwk.CycleState, name string) {
		wantStatus(t, extensions.RemovePod(b.ctx, state, pod, podInfo(t, plainPod(name)), nodeNamed("a")), fwk.Success, "")
	}

	if got := filter(trial, "a"); got != fwk.Unschedulable {
		t.Errorf("with both: %s", got)
	}
	remove(trial, "v1")
	remove(trial, "bystander")
	if got := filter(trial, "a"); got != fwk.Unschedulable {
		t.Errorf("with one: %s", got)
	}
	other := trial.Clone()
	remove(trial, "v2")
	if got := filter(trial, "a"); got != fwk.Success {
		t.Errorf("without both: %s", got)
	}
	if got := filter(trial, "b"); got != fwk.Unschedulable {
		t.Errorf("on another node: %s", got)
	}
	if got := filter(other, "a"); got != fwk.Unschedulable {
		t.Errorf("what is removed in one clone is removed in another: %s", got)
	}
	wantStatus(t, extensions.AddPod(b.ctx, trial, pod, podInfo(t, plainPod("v2")), nodeNamed("a")), fwk.Success, "")
	if got := filter(trial, "a"); got != fwk.Unschedulable {
		t.Errorf("with one spared: %s", got)
	}
	// The cycle itself still answers by the verdict.
	if c := readCycle(state); c.dryRun != nil || len(c.removed) > 0 {
		t.Errorf("the cycle changed: %v", c)
	}
	if got := filter(tryingOut(state, &dryRun{node: "b"}), "b"); got != fwk.Success {
		t.Errorf("without victims: %s", got)
	}
	if got := filter(tryingOut(state, &dryRun{}), "c"); got != fwk.Success {
		t.Errorf("while the others are asked: %s", got)
	}
}

func TestNominatedPodsAreNothingToFilter(t *testing.T) {
	service := newFakeService(abc...)
	service.filter = service.feasible(0)
	b := connected(t, service, nil)
	pod := gpuPod("p", 1)
	state, _, _ := b.preFilter(pod, nodesNamed(abc...))
	with := state.Clone()
	wantStatus(t, b.plugin.PreFilterExtensions().AddPod(b.ctx, with, pod, podInfo(t, urgentPod()), nodeNamed("a")), fwk.Success, "")
	wantStatus(t, b.plugin.Filter(b.ctx, with, pod, nodeNamed("a")), fwk.Success, "")
}
