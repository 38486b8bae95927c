package gputopology

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// leaves reports whether the pod goes if the preemptor needs its place, or goes anyway.
func leaves(pod, preemptor *v1.Pod) bool { return isLeaving(pod) || isLower(pod, preemptor) }

func isLeaving(pod *v1.Pod) bool { return pod.DeletionTimestamp != nil }

func isLower(pod, preemptor *v1.Pod) bool {
	return corev1helpers.PodPriority(pod) < corev1helpers.PodPriority(preemptor)
}

// isCurable asks the other plugins whether the node would take the pod if all
// pods were gone that an eviction may remove. The state is one that our Filter passes.
func (p *Plugin) isCurable(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) bool {
	trial, emptied := state.Clone(), node.Snapshot()
	for _, info := range node.GetPods() {
		if leaves(info.GetPod(), pod) && !p.remove(ctx, trial, pod, info, emptied).IsSuccess() {
			return false
		}
	}
	return p.handle.RunFilterPluginsWithNominatedPods(ctx, trial, pod, emptied).IsSuccess()
}

// remove takes a pod off a copy of its node and out of what the plugins noted of it.
func (p *Plugin) remove(ctx context.Context, trial fwk.CycleState, preemptor *v1.Pod, gone fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	if err := node.RemovePod(klog.FromContext(ctx), gone.GetPod()); err != nil {
		return fwk.AsStatus(err)
	}
	return p.handle.RunPreFilterExtensionRemovePod(ctx, trial, preemptor, gone, node)
}

// protected returns the pods of lower priority on these nodes whose eviction would break a PodDisruptionBudget. The
// eviction is of one node, so what a budget allows is counted for each; it goes to the least important pods.
func (p *Plugin) protected(pod *v1.Pod, nodes map[uint32]fwk.NodeInfo) ([]string, error) {
	budgets, err := p.preemption.Evaluator.PdbLister.List(labels.Everything())
	if err != nil || len(budgets) == 0 {
		return nil, err
	}
	uids := sets.New[string]()
	for _, node := range nodes {
		var lower []preemption.Victim
		for _, info := range node.GetPods() {
			if isLower(info.GetPod(), pod) && !isLeaving(info.GetPod()) {
				lower = append(lower, preemption.NewPodVictim(info, nil, nil))
			}
		}
		slices.SortStableFunc(lower, byImportance)
		violating, _ := preemption.FilterVictimsWithPDBViolation(lower, budgets)
		for _, v := range violating {
			uids.Insert(string(v.Victim.Pods()[0].GetPod().UID))
		}
	}
	return sets.List(uids), nil
}

func byImportance(a, b preemption.Victim) int {
	switch {
	case preemption.MoreImportantVictim(b, a):
		return -1
	case preemption.MoreImportantVictim(a, b):
		return 1
	default:
		return 0
	}
}

// eviction lets the in-tree preemption carry out one proposal of the service: it
// adds the victims that CPU or memory needs, and evicts. What goes anyway counts as gone.
type eviction struct {
	*defaultpreemption.DefaultPreemption
	plugin *Plugin
	// victims are the pods that were chosen. unneeded: the node takes the pod without any.
	victims  []*v1.Pod
	unneeded bool
}

// carryOut reports whether the proposal holds: the victims are being evicted, or nobody needs to be.
func (p *Plugin) carryOut(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo, victims []string) (*eviction, bool) {
	e := &eviction{DefaultPreemption: p.preemption, plugin: p}
	trial := tryingOut(state, &dryRun{node: node.Node().Name, victims: uidsOn(node, victims)})
	evaluator := preemption.NewEvaluator(Name, p.handle, e, p.preemption.Executor)
	_, status := evaluator.Preempt(ctx, trial, pod, onlyNode{node})
	if !status.IsSuccess() && !e.unneeded {
		klog.FromContext(ctx).V(3).Info("The proposed eviction does not make room for the pod", logPod, klog.KObj(pod), logPodUID, pod.UID,
			logNode, klog.KObj(node.Node()), logVictims, victims, "why", status.Message())
		return e, false
	}
	return e, true
}

// GetOffsetAndNumCandidates has the one node tried.
func (e *eviction) GetOffsetAndNumCandidates(int32) (int32, int32) { return 0, 1 }

// PodEligibleToPreemptOthers was asked before the service was: see mayPreempt.
func (e *eviction) PodEligibleToPreemptOthers(context.Context, *v1.Pod, *fwk.Status) (bool, string) {
	return true, ""
}

// SelectVictimsOnNode chooses as DefaultPreemption does, on the node as it will be without the pods that leave it.
func (e *eviction) SelectVictimsOnNode(ctx context.Context, trial fwk.CycleState, preemptor *v1.Pod, node fwk.NodeInfo,
	possible []*preemption.DomainVictim, budgets []*policy.PodDisruptionBudget) ([]*v1.Pod, int, *fwk.Status) {
	leaving := map[types.UID]bool{}
	for _, info := range slices.Clone(node.GetPods()) {
		if !isLeaving(info.GetPod()) {
			continue
		}
		leaving[info.GetPod().UID] = true
		if status := e.plugin.remove(ctx, trial, preemptor, info, node); !status.IsSuccess() {
			return nil, 0, status
		}
	}
	if e.plugin.handle.RunFilterPluginsWithNominatedPods(ctx, trial, preemptor, node).IsSuccess() {
		e.unneeded = true
		return nil, 0, fwk.NewStatus(fwk.Unschedulable, "nobody has to be evicted")
	}
	staying := slices.DeleteFunc(slices.Clone(possible), func(v *preemption.DomainVictim) bool {
		return slices.ContainsFunc(v.Pods(), func(info fwk.PodInfo) bool { return leaving[info.GetPod().UID] })
	})
	victims, violations, status := e.DefaultPreemption.SelectVictimsOnNode(ctx, trial, preemptor, node, staying, budgets)
	e.victims = victims
	return victims, violations, status
}

// onlyNode tells the in-tree preemption that an eviction helps on this node and on no other.
type onlyNode struct{ node fwk.NodeInfo }

func (o onlyNode) Get(name string) *fwk.Status {
	if name == o.node.Node().Name {
		return fwk.NewStatus(fwk.Unschedulable, reasonNotFree)
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
}

func (o onlyNode) NodesForStatusCode(_ fwk.NodeInfoLister, code fwk.Code) ([]fwk.NodeInfo, error) {
	if code == fwk.Unschedulable {
		return []fwk.NodeInfo{o.node}, nil
	}
	return nil, nil
}
