package gputopology

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const reasonWiden = "The nodes with the best GPUs lack something else: all nodes are looked at next."

// PostFilter runs when no node passed. If only the candidates were looked at,
// the pod is tried again at once with all nodes. DefaultPreemption comes after
// it and is stopped (by UnschedulableAndUnresolvable) where it could only evict
// in vain: while other nodes were not looked at, and where GPUs are what lacks.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	c := readCycle(state)
	switch {
	case c != nil && c.kind == cycleNarrow:
		klog.FromContext(ctx).V(3).Info("No candidate passed the other plugins; looking at all nodes", logPod, klog.KObj(pod), logPodUID, pod.UID)
		p.link.waiting.widen(pod.UID)
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reasonWiden)
	case c != nil && c.kind == cycleRefused:
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	default:
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
}
