package gputopology

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// EventsToRegister names what may help a refused pod. The service wakes pods
// more precisely (see changes.go); these events help also where it does not know of them.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	nodeChanges := fwk.Add | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint | fwk.UpdateNodeAllocatable
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: nodeChanges}},
		// A changed annotation matches the whole Update only.
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}, QueueingHintFn: p.podChanged},
	}, nil
}

// podChanged queues a refused pod whose own wishes changed. Other updates, such
// as the condition that the refusal itself writes, cannot help it.
func (p *Plugin) podChanged(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, isPod := oldObj.(*v1.Pod)
	after, isStillPod := newObj.(*v1.Pod)
	if !isPod || !isStillPod {
		return fwk.Queue, fmt.Errorf("an update of a pod from %T to %T", oldObj, newObj)
	}
	if proto.Equal(describe(before, p.args.Resources), describe(after, p.args.Resources)) &&
		apiequality.Semantic.DeepEqual(wishesOf(before), wishesOf(after)) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}
