package gputopology

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

// preemptForGroup lets the service say which pods of lower priority have to go so that the pod's whole group has room, and
// has them evicted. The pod stays refused: the service keeps the nodes for the group, and wakes it when they are free.
func (p *Plugin) preemptForGroup(ctx context.Context, c *cycle, pod *v1.Pod) *fwk.Status {
	schedulermetrics.PreemptionAttempts.Inc()
	logger := klog.FromContext(ctx)
	if policy := pod.Spec.PreemptionPolicy; policy != nil && *policy == v1.PreemptNever || p.mustRest(pod) {
		return c.stillRefused()
	}
	request, err := p.requestForGroup(c, pod)
	if err != nil {
		logger.Error(err, "The group cannot preempt now", logPod, klog.KObj(pod), logPodUID, pod.UID)
		return c.stillRefused()
	}
	answer, err := p.preemptCall(ctx, p.args.PlanTimeout.Duration, request)
	if err != nil {
		p.preemptFailed(ctx, pod, err)
		return c.stillRefused()
	}
	if answer.GetVerdict().GetCode() == pb.Verdict_CODE_UNSCHEDULABLE {
		logger.V(3).Info("No eviction helps the group", logPod, klog.KObj(pod), logPodUID, pod.UID, "why", answer.GetVerdict().GetReason())
		return c.stillRefused()
	}
	victims := p.stillRunning(answer.GetVictimUids())
	if !allLower(victims, pod) {
		p.preemptFailed(ctx, pod, p.nonsense("Preempt", "a victim that has no lower priority"))
		return c.stillRefused()
	}
	p.evictForGroup(ctx, pod, victims)
	return c.stillRefused()
}

// requestForGroup asks about all eligible nodes: an eviction for a group is of many nodes at once.
func (p *Plugin) requestForGroup(c *cycle, pod *v1.Pod) (*pb.PreemptRequest, error) {
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, err
	}
	mayGo := func(other *v1.Pod) bool { return isLower(other, pod) && asksForGPUs(other, p.args.Resources) }
	budgeted, err := p.protected(func() [][]fwk.PodInfo {
		var together []fwk.PodInfo
		for _, node := range nodes {
			if i, known := c.verdict.table.lookup(node.Node().Name); known && c.eligible.has(i) {
				together = append(together, lowerOn(node, pod)...)
			}
		}
		return [][]fwk.PodInfo{slices.DeleteFunc(together, func(info fwk.PodInfo) bool { return !mayGo(info.GetPod()) })}
	})
	if err != nil {
		return nil, err
	}
	request := preemptRequest(c, c.eligible, budgeted)
	request.Room = roomWithout(pod, nodes, c.eligible, c.verdict.table, mayGo)
	return request, nil
}

// evictForGroup has the pods evicted beside the scheduling cycles, and says so. What is under way already is not begun again.
func (p *Plugin) evictForGroup(ctx context.Context, pod *v1.Pod, victims []*v1.Pod) {
	victims = slices.DeleteFunc(victims, func(victim *v1.Pod) bool {
		_, underWay := p.evicting.LoadOrStore(victim.UID, true)
		return underWay
	})
	if len(victims) == 0 {
		return
	}
	schedulermetrics.PreemptionVictims.Observe(float64(len(victims)))
	klog.FromContext(ctx).V(2).Info("Pods are evicted for a group", logPod, klog.KObj(pod), logPodUID, pod.UID, logVictims, klog.KObjSlice(victims))
	p.teller.recorder.Event(pod, v1.EventTypeNormal, reasonPreempting,
		fmt.Sprintf("preempting %s of lower priority for the group of the pod", plural(len(victims), "pod")))
	p.link.run(func(ctx context.Context) { p.evictAll(ctx, pod, victims) })
}

// evictAll evicts the pods, several at a time. If one cannot be evicted the preemptor is tried again after a rest: the
// service then names those that are still there.
func (p *Plugin) evictAll(ctx context.Context, pod *v1.Pod, victims []*v1.Pod) {
	var failed atomic.Bool
	p.handle.Parallelizer().Until(ctx, len(victims), func(i int) {
		victim := victims[i]
		defer p.evicting.Delete(victim.UID)
		if _, err := p.preemption.Executor.PreemptPod(ctx, ofItsNode{victim}, memberPreemptor{pod}, victim, Name); err != nil {
			klog.FromContext(ctx).Error(err, "A pod could not be evicted for a group", logPod, klog.KObj(pod), logPodUID, pod.UID, "victim", klog.KObj(victim))
			failed.Store(true)
		}
	}, Name)
	if !failed.Load() {
		return
	}
	p.link.waiting.noteFailed(pod.UID)
	if sleep(ctx, preemptionRest) {
		p.link.waiting.wake(pod.UID)
	}
}

// ofItsNode is one victim as a candidate of the in-tree preemption: its Event names the node that it was on.
type ofItsNode struct{ victim *v1.Pod }

func (o ofItsNode) Victims() *extenderv1.Victims {
	return &extenderv1.Victims{Pods: []*v1.Pod{o.victim}}
}
func (o ofItsNode) Name() string                { return o.victim.Spec.NodeName }
func (o ofItsNode) NumPodGroupDisruptions() int { return 0 }

// memberPreemptor is the member that asked, for the in-tree preemption a pod as any other.
type memberPreemptor struct{ *v1.Pod }

func (m memberPreemptor) UID() types.UID           { return m.Pod.UID }
func (m memberPreemptor) SchedulerName() string    { return m.Spec.SchedulerName }
func (m memberPreemptor) Obj() runtime.Object      { return m.Pod }
func (m memberPreemptor) Pods() map[string]*v1.Pod { return map[string]*v1.Pod{m.Name: m.Pod} }
func (m memberPreemptor) Priority() int32          { return corev1helpers.PodPriority(m.Pod) }
func (m memberPreemptor) Type() string             { return string(fwk.PodKeyType) }
