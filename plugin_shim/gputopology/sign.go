package gputopology

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// SignPod keeps pods with GPUs out of opportunistic batching, since each takes
// GPUs from the next, and leaves it on for all others.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if asksForGPUs(pod, p.args.Resources) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "GPUs are chosen for each pod alone")
	}
	return nil, nil
}
