package gputopology

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// SignPod keeps pods with GPUs out of opportunistic batching, since each takes
// GPUs from the next, and members of groups, since each has its own place. It
// leaves it on for all others.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if !p.leavesAlone(pod) && (asksForGPUs(pod, p.args.Resources) || isMember(pod)) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "GPUs and places in a group are chosen for each pod alone")
	}
	return nil, nil
}
