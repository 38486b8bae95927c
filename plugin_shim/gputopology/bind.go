package gputopology

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// bindingsMax is how many Bindings are under way at a time. Those of a group come all at once, and what is more than the
// API server's queues hold for one client (6 of 50 by default: API Priority and Fairness) it refuses for a second.
const bindingsMax = 100

// advisoryPlacement marks a pod that was bound while the service was away.
const advisoryPlacement = `{"advisory":true,"reason":"the GPU topology service was away: GPUs were counted, not chosen"}`

var errConflict = errors.New("the GPUs chosen for this pod are held by another pod: it is placed anew")

// Bind posts the Binding with the chosen GPUs in its annotations, in the same
// write. Pods without GPUs are left to DefaultBinder, which stands after it. A
// member of a group is bound only if its plan was let go, whatever Permit said.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	c := readCycle(state)
	if c == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	if c.member != nil && !p.link.gangs.isLetGo(c.member.GetPlan()) {
		return p.failed(pod, errNotLetGo)
	}
	if c.kind == cycleLauncher {
		return fwk.NewStatus(fwk.Skip)
	}
	annotations := c.annotations
	if c.kind == cycleAdvisory {
		annotations = advisory(pod)
	} else if p.link.books.isConflicting(pod.UID, c.attempt) {
		return p.failed(pod, errConflict)
	}
	select {
	case p.link.bindings <- struct{}{}:
		defer func() { <-p.link.bindings }()
	case <-ctx.Done():
		return p.failed(pod, ctx.Err())
	}
	b := newBinder(p.pods.Pods(pod.Namespace), bindingOf(pod, nodeName, annotations))
	outcome, err := b.bind(ctx)
	switch outcome {
	case bound:
		p.link.waiting.forget(pod.UID)
		return nil
	case unknown:
		doubtfulBindings.Inc()
		c.doubt = &doubt{binder: b, pod: klog.KObj(pod)}
	}
	return p.failed(pod, fmt.Errorf("binding to node %s: %w", nodeName, err))
}

// advisory returns the annotations of a pod whose GPUs were only counted. What its maker wrote under our keys is
// overwritten: a Binding cannot remove it, and an empty value counts as none.
func advisory(pod *v1.Pod) map[string]string {
	annotations := map[string]string{}
	for _, key := range outputs {
		if _, forged := pod.Annotations[key]; forged {
			annotations[key] = ""
		}
	}
	annotations[annotationPlacement] = advisoryPlacement
	return annotations
}

func bindingOf(pod *v1.Pod, nodeName string, annotations map[string]string) *v1.Binding {
	return &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: annotations},
		Target:     v1.ObjectReference{Kind: "Node", Name: nodeName},
	}
}
