package gputopology

import (
	"context"

	fwk "k8s.io/kube-scheduler/framework"
)

// EventsToRegister names what may help a refused pod. The service wakes pods
// more precisely (see changes.go); these events help also where it does not know of them.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	nodeChanges := fwk.Add | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint | fwk.UpdateNodeAllocatable
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: nodeChanges}},
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}},
	}, nil
}
