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

// EventsToRegister names what may help a refused pod. What the service sees too
// (GPUs that are freed, nodes that change their capacity, members that join a
// group) it tells more precisely, by pod: see changes.go. Such events count only while it cannot;
// otherwise each of them would have every refused pod tried again.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: p.toldByService},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAllocatable}, QueueingHintFn: p.toldByService},
		// Cordons come as changes of taints. A node that joins may be known to the service already, so that the pod's
		// refusal says that it was judged: only the scheduler knows that it was not in its snapshot.
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint}, QueueingHintFn: p.nodeAdmits},
		// A changed annotation matches the whole Update only.
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}, QueueingHintFn: p.podChanged},
	}, nil
}

// toldByService queues a refused pod only while the service cannot say whom a change helps.
func (p *Plugin) toldByService(klog.Logger, *v1.Pod, any, any) (fwk.QueueingHint, error) {
	if p.link.following.Load() {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// nodeAdmits queues a refused pod that the node admits now and did not before: of that the service knows nothing.
func (p *Plugin) nodeAdmits(logger klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, isUpdate := oldObj.(*v1.Node)
	after, isNode := newObj.(*v1.Node)
	if !isNode || !isUpdate && oldObj != nil {
		return fwk.Queue, fmt.Errorf("a change of a node from %T to %T", oldObj, newObj)
	}
	judge := admissionOf(pod)
	if isUpdate && judge.admits(logger, before) || !judge.admits(logger, after) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// podChanged queues a refused pod whose own wishes changed. Other updates, such
// as the condition that the refusal itself writes, cannot help it.
func (p *Plugin) podChanged(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, isPod := oldObj.(*v1.Pod)
	after, isStillPod := newObj.(*v1.Pod)
	if !isPod || !isStillPod {
		return fwk.Queue, fmt.Errorf("an update of a pod from %T to %T", oldObj, newObj)
	}
	if proto.Equal(p.describe(before), p.describe(after)) &&
		apiequality.Semantic.DeepEqual(wishesOf(before), wishesOf(after)) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}
