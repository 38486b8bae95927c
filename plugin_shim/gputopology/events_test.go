package gputopology

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

var discard = klog.Background()

func TestEventsMatchWhatHelps(t *testing.T) {
	b := newTestBench(t, nil)
	events, err := b.plugin.EventsToRegister(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	masks := map[fwk.EventResource]fwk.ActionType{}
	for _, event := range events {
		masks[event.Event.Resource] |= event.Event.ActionType
	}
	for resource, action := range map[fwk.EventResource]fwk.ActionType{
		fwk.AssignedPod: fwk.Delete,
		fwk.Node:        fwk.Add | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint | fwk.UpdateNodeAllocatable,
		fwk.TargetPod:   fwk.Update,
	} {
		if masks[resource]&action != action {
			t.Errorf("%s: %b is not within %b", resource, action, masks[resource])
		}
	}
}

func TestWhatTheServiceTellsIsLeftToItWhileItCan(t *testing.T) {
	b := newTestBench(t, nil)
	for following, want := range map[bool]fwk.QueueingHint{true: fwk.QueueSkip, false: fwk.Queue} {
		b.plugin.link.following.Store(following)
		if got, err := b.plugin.toldByService(discard, gpuPod("p", 1), nil, nil); err != nil || got != want {
			t.Errorf("following %v: %v, %v, want %v", following, got, err, want)
		}
	}
}

func TestAPodIsQueuedWhenANodeBeginsToAdmitIt(t *testing.T) {
	b := newTestBench(t, nil)
	tainted := func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}} }
	cordoned := func(n *v1.Node) { n.Spec.Unschedulable = true }
	labelled := func(n *v1.Node) { n.Labels = map[string]string{"zone": "a"} }
	as := func(*v1.Node) {}
	for name, test := range map[string]struct {
		before, after func(*v1.Node)
		want          fwk.QueueingHint
	}{
		"label that it asks for":       {before: as, after: labelled, want: fwk.Queue},
		"label of others":              {before: as, after: func(n *v1.Node) { n.Labels = map[string]string{"x": "y"} }, want: fwk.QueueSkip},
		"was admitted before":          {before: labelled, after: labelled, want: fwk.QueueSkip},
		"loses the label":              {before: labelled, after: as, want: fwk.QueueSkip},
		"taint is removed":             {before: func(n *v1.Node) { labelled(n); tainted(n) }, after: labelled, want: fwk.Queue},
		"uncordoned":                   {before: func(n *v1.Node) { labelled(n); cordoned(n) }, after: labelled, want: fwk.Queue},
		"uncordoned but still tainted": {before: func(n *v1.Node) { labelled(n); cordoned(n); tainted(n) }, after: func(n *v1.Node) { labelled(n); tainted(n) }, want: fwk.QueueSkip},
	} {
		t.Run(name, func(t *testing.T) {
			pod, before, after := gpuPod("p", 1), &v1.Node{}, &v1.Node{}
			withSelector("zone", "a")(pod)
			test.before(before)
			test.after(after)
			if got, err := b.plugin.nodeAdmits(discard, pod, before, after); err != nil || got != test.want {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
	for name, want := range map[string]fwk.QueueingHint{"a": fwk.Queue, "b": fwk.QueueSkip} {
		pod, joined := gpuPod("p", 1), &v1.Node{}
		withSelector("zone", "a")(pod)
		joined.Labels = map[string]string{"zone": name}
		if got, err := b.plugin.nodeAdmits(discard, pod, nil, joined); err != nil || got != want {
			t.Errorf("a node of zone %s joins: %v, %v, want %v", name, got, err, want)
		}
	}
	if got, err := b.plugin.nodeAdmits(discard, gpuPod("p", 1), nil, nil); err == nil || got != fwk.Queue {
		t.Errorf("an update of something else: %v, %v", got, err)
	}
}

func TestAPodIsQueuedWhenItsWishesChange(t *testing.T) {
	b := newTestBench(t, nil)
	for name, test := range map[string]struct {
		change func(*v1.Pod)
		want   fwk.QueueingHint
	}{
		"condition written by the refusal": {change: func(p *v1.Pod) { p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled}} }, want: fwk.QueueSkip},
		"annotation of others":             {change: func(p *v1.Pod) { p.Annotations = map[string]string{"x": "y"} }, want: fwk.QueueSkip},
		"our annotation":                   {change: func(p *v1.Pod) { p.Annotations = map[string]string{"pyscheduler.io/max-link": "5"} }, want: fwk.Queue},
		"our output":                       {change: func(p *v1.Pod) { p.Annotations = map[string]string{"pyscheduler.io/gpus": "5"} }, want: fwk.QueueSkip},
		"toleration":                       {change: withToleration(v1.Toleration{Key: "k"}), want: fwk.Queue},
		"node selector":                    {change: withSelector("zone", "a"), want: fwk.Queue},
		"fewer GPUs":                       {change: func(p *v1.Pod) { p.Spec.Containers = gpuPod("p", 1).Spec.Containers }, want: fwk.Queue},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := gpuPod("p", 2), gpuPod("p", 2)
			test.change(after)
			got, err := b.plugin.podChanged(discard, before, before, after)
			if err != nil || got != test.want {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
	if got, err := b.plugin.podChanged(discard, nil, nil, nil); err == nil || got != fwk.Queue {
		t.Errorf("an update of something else: %v, %v", got, err)
	}
}

func TestOnlyGPUPodsAreKeptOutOfBatching(t *testing.T) {
	b := newTestBench(t, nil)
	if _, got := b.plugin.SignPod(b.ctx, gpuPod("p", 1)); got.Code() != fwk.Unschedulable {
		t.Errorf("GPU pod: %v", got)
	}
	if fragments, got := b.plugin.SignPod(b.ctx, plainPod("p")); !got.IsSuccess() || fragments != nil {
		t.Errorf("plain pod: %v, %v", fragments, got)
	}
}
