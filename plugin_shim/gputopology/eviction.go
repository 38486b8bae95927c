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

// evictionsOn returns who could go for the pod, by node: its eviction is of one of them.
func evictionsOn(nodes map[uint32]fwk.NodeInfo, pod *v1.Pod) [][]fwk.PodInfo {
	var evictions [][]fwk.PodInfo
	for _, node := range nodes {
		evictions = append(evictions, lowerOn(node, pod))
	}
	return evictions
}

// lowerOn returns the pods of lower priority on the node, without those that go anyway.
func lowerOn(node fwk.NodeInfo, pod *v1.Pod) []fwk.PodInfo {
	var lower []fwk.PodInfo
	for _, info := range node.GetPods() {
		if isLower(info.GetPod(), pod) && !isLeaving(info.GetPod()) {
			lower = append(lower, info)
		}
	}
	return lower
}

// protected returns the pods whose eviction would break a PodDisruptionBudget. What a budget allows is counted for each of
// the evictions, of which there will be one; it goes to the least important pods. They are listed only if there are budgets.
func (p *Plugin) protected(evictions func() [][]fwk.PodInfo) ([]string, error) {
	budgets, err := p.preemption.Evaluator.PdbLister.List(labels.Everything())
	if err != nil || len(budgets) == 0 {
		return nil, err
	}
	uids := sets.New[string]()
	for _, pods := range evictions() {
		var victims []preemption.Victim
		for _, info := range pods {
			victims = append(victims, preemption.NewPodVictim(info, nil, nil))
		}
		slices.SortStableFunc(victims, byImportance)
		violating, _ := preemption.FilterVictimsWithPDBViolation(victims, budgets)
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
	// named are the victims that the service named; elsewhere are those of them on other nodes: members of groups.
	named     []string
	elsewhere []*v1.Pod
	// victims are all pods that were chosen. unneeded: the node takes the pod without any.
	victims  []*v1.Pod
	unneeded bool
	// refused are members of groups that waited in Permit, and are refused there: they leave the node in a moment.
	refused sets.Set[types.UID]
}

// carryOut reports whether the proposal holds: the victims are being evicted, or nobody needs to be.
func (p *Plugin) carryOut(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo, victims []string, refused sets.Set[types.UID]) (*eviction, bool) {
	e := &eviction{DefaultPreemption: p.preemption, plugin: p, named: victims, refused: refused}
	here := uidsOn(node, victims)
	if len(here) < len(victims) {
		e.elsewhere = slices.DeleteFunc(p.stillRunning(victims), func(victim *v1.Pod) bool { return slices.Contains(here, victim.UID) })
	}
	trial := tryingOut(state, &dryRun{node: node.Node().Name, victims: here})
	evaluator := preemption.NewEvaluator(Name, p.handle, e, p.preemption.Executor)
	_, status := evaluator.Preempt(ctx, trial, pod, onlyNode{node})
	if !status.IsSuccess() && !e.unneeded {
		klog.FromContext(ctx).V(3).Info("The proposed eviction does not make room for the pod", logPod, klog.KObj(pod), logPodUID, pod.UID,
			logNode, klog.KObj(node.Node()), logVictims, victims, "why", status.Message())
		return e, false
	}
	return e, true
}

// stillRunning returns those of the pods that are on a node and do not leave it yet: the others need no eviction.
func (p *Plugin) stillRunning(uids []string) []*v1.Pod {
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil // It did not fail when the nodes to ask about were listed.
	}
	wanted, found := sets.New(uids...), []*v1.Pod(nil)
	for _, node := range nodes {
		for _, info := range node.GetPods() {
			if pod := info.GetPod(); wanted.Has(string(pod.UID)) && !isLeaving(pod) {
				found = append(found, pod)
			}
		}
	}
	return found
}

// GetOffsetAndNumCandidates has the one node tried.
func (e *eviction) GetOffsetAndNumCandidates(int32) (int32, int32) { return 0, 1 }

// PodEligibleToPreemptOthers was asked before the service was: see mayPreempt.
func (e *eviction) PodEligibleToPreemptOthers(context.Context, *v1.Pod, *fwk.Status) (bool, string) {
	return true, ""
}

// SelectVictimsOnNode chooses as DefaultPreemption does, on the node as it will be without the pods that leave it. Of a
// group that the service named all go, wherever they are, also if the node has become free meanwhile; of other groups nobody.
func (e *eviction) SelectVictimsOnNode(ctx context.Context, trial fwk.CycleState, preemptor *v1.Pod, node fwk.NodeInfo,
	possible []*preemption.DomainVictim, budgets []*policy.PodDisruptionBudget) ([]*v1.Pod, int, *fwk.Status) {
	if !allLower(e.elsewhere, preemptor) {
		return nil, 0, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "a pod that would have to go has no lower priority")
	}
	leaving := map[types.UID]bool{}
	for _, info := range slices.Clone(node.GetPods()) {
		if !isLeaving(info.GetPod()) && !e.refused.Has(info.GetPod().UID) {
			continue
		}
		leaving[info.GetPod().UID] = true
		if status := e.plugin.remove(ctx, trial, preemptor, info, node); !status.IsSuccess() {
			return nil, 0, status
		}
	}
	if e.plugin.handle.RunFilterPluginsWithNominatedPods(ctx, trial, preemptor, node).IsSuccess() {
		e.unneeded, e.victims = len(e.elsewhere) == 0, e.elsewhere
		if e.unneeded {
			return nil, 0, fwk.NewStatus(fwk.Unschedulable, "nobody has to be evicted")
		}
		return e.victims, 0, nil
	}
	staying := slices.DeleteFunc(slices.Clone(possible), func(v *preemption.DomainVictim) bool {
		return slices.ContainsFunc(v.Pods(), func(info fwk.PodInfo) bool {
			pod := info.GetPod()
			return leaving[pod.UID] || isMember(pod) && !slices.Contains(e.named, string(pod.UID))
		})
	})
	victims, violations, status := e.DefaultPreemption.SelectVictimsOnNode(ctx, trial, preemptor, node, staying, budgets)
	if !status.IsSuccess() {
		return nil, 0, status
	}
	// Those on this node last: the one that is evicted after all others had better be one without which there is no room,
	// so that the service names them again if an eviction fails.
	e.victims = append(slices.Clone(e.elsewhere), victims...)
	return e.victims, violations, status
}

func allLower(pods []*v1.Pod, preemptor *v1.Pod) bool {
	return !slices.ContainsFunc(pods, func(pod *v1.Pod) bool { return !isLower(pod, preemptor) })
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
