package gputopology

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const reasonWiden = "The nodes with the best GPUs lack something else: all nodes are looked at next."

// PostFilter runs when no node passed. If only the candidates were looked at,
// the pod is tried again at once with all nodes. Otherwise pods of lower priority
// may have to go: for GPUs the service says which, for other pods the in-tree
// preemption does. Where GPUs are what lacks and no eviction helps, plugins that
// come after ours could only evict in vain, and are stopped (by UnschedulableAndUnresolvable).
// For a member of a group pods are evicted only if that makes room for the whole group: room for one alone does not help it.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	c := readCycle(state)
	switch {
	case c == nil && asksForGPUs(pod, p.args.Resources) && !p.leavesAlone(pod):
		return nil, fwk.NewStatus(fwk.Unschedulable) // Refused before the service was asked.
	case c == nil || c.countsNothing():
		return p.preemption.PostFilter(ctx, state, pod, statuses)
	case c.kind == cyclePlanned:
		return nil, p.replan(ctx, c, pod, statuses)
	case c.preempt:
		return nil, p.preemptForGroup(ctx, c, pod)
	case c.pod.GetMembership() != nil:
		return nil, c.stillRefused()
	case c.kind == cycleNarrow:
		klog.FromContext(ctx).V(3).Info("No candidate passed the other plugins; looking at all nodes", logPod, klog.KObj(pod), logPodUID, pod.UID)
		p.tell(pod, reasonWiden)
		p.link.waiting.widen(pod.UID)
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reasonWiden)
	case c.kind == cycleWide:
		p.tellWide(pod, statuses)
	}
	return p.preempt(ctx, state, pod, statuses)
}

// stillRefused is the status of a cycle that no eviction helps.
func (c *cycle) stillRefused() *fwk.Status {
	if c.kind == cycleRefused {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	}
	return fwk.NewStatus(fwk.Unschedulable)
}

// tellWide tells what the wide cycle found: the framework's own Event would not show after that of the narrow one.
func (p *Plugin) tellWide(pod *v1.Pod, statuses fwk.NodeToStatusReader) {
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return // The framework ends the cycle with the same error.
	}
	counts := map[string]int{}
	for _, node := range nodes {
		for _, reason := range statuses.Get(node.Node().Name).Reasons() {
			counts[reason]++
		}
	}
	p.tell(pod, unavailable(len(nodes), counts))
}

// unavailable says in the framework's words why none of the nodes will do; counts are by reason.
func unavailable(nodes int, counts map[string]int) string {
	var found []string
	for reason, count := range counts {
		found = append(found, fmt.Sprintf("%d %s", count, reason))
	}
	slices.Sort(found)
	return fmt.Sprintf("0/%d nodes are available: %s.", nodes, strings.Join(found, ", "))
}
