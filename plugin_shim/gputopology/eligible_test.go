package gputopology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

func tableOf(epoch uint64, names ...string) *table {
	return (&table{}).extended(&pb.NodesResponse{Epoch: epoch, Names: names})
}

func namesIn(b bitmap, t *table) []string {
	var names []string
	for i, name := range t.names {
		if b.has(uint32(i)) {
			names = append(names, name)
		}
	}
	return names
}

func cordoned(n *v1.Node) { n.Spec.Unschedulable = true }

func labelled(key, value string) func(*v1.Node) {
	return func(n *v1.Node) { n.Labels[key] = value }
}

func tainted(effect v1.TaintEffect) func(*v1.Node) {
	return func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "k", Value: "v", Effect: effect})
	}
}

func withSelector(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
}

func withToleration(toleration v1.Toleration) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, toleration) }
}

func withAffinity(term v1.NodeSelectorTerm) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}},
		}}
	}
}

func TestEligibleNodes(t *testing.T) {
	nodes := []fwk.NodeInfo{
		nodeNamed("free"), nodeNamed("cordoned", cordoned), nodeNamed("no-schedule", tainted(v1.TaintEffectNoSchedule)),
		nodeNamed("no-execute", tainted(v1.TaintEffectNoExecute)), nodeNamed("prefer-not", tainted(v1.TaintEffectPreferNoSchedule)),
		nodeNamed("zoned", labelled("zone", "a")), nodeNamed("not-in-table"),
	}
	table := tableOf(1, "free", "cordoned", "no-schedule", "no-execute", "prefer-not", "zoned", "not-in-cluster")
	for name, test := range map[string]struct {
		pod  func(*v1.Pod)
		want []string
	}{
		"no wishes":            {pod: func(*v1.Pod) {}, want: []string{"free", "prefer-not", "zoned"}},
		"node selector":        {pod: withSelector("zone", "a"), want: []string{"zoned"}},
		"selector for nothing": {pod: withSelector("zone", "b"), want: nil},
		"affinity":             {pod: withAffinity(v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "zone", Operator: v1.NodeSelectorOpDoesNotExist}}}), want: []string{"free", "prefer-not"}},
		"affinity to a name":   {pod: withAffinity(v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"free"}}}}), want: []string{"free"}},
		"tolerates NoSchedule": {pod: withToleration(v1.Toleration{Key: "k", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}), want: []string{"free", "no-schedule", "prefer-not", "zoned"}},
		"tolerates all":        {pod: withToleration(v1.Toleration{Operator: v1.TolerationOpExists}), want: []string{"free", "cordoned", "no-schedule", "no-execute", "prefer-not", "zoned"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := gpuPod("p", 1)
			test.pod(pod)
			e := newEligibility()
			for range 2 { // The second answer comes from the cache.
				if got := namesIn(e.of(klog.Background(), pod, nodes, table), table); !slices.Equal(got, test.want) {
					t.Errorf("got %v, want %v", got, test.want)
				}
			}
		})
	}
}

func TestEligibleNodesBelongToTheCaller(t *testing.T) {
	e, table, nodes := newEligibility(), tableOf(1, "a"), nodesNamed("a")
	e.of(klog.Background(), gpuPod("p", 1), nodes, table).set(0, false)
	if got := e.of(klog.Background(), gpuPod("p", 1), nodes, table); !got.has(0) {
		t.Error("the caller changed the cached set")
	}
}

// naive judges every node by itself.
func naive(pod *v1.Pod, nodes []fwk.NodeInfo, t *table) []string {
	var names []string
	for _, name := range t.names {
		for _, info := range nodes {
			node := info.Node()
			_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, func(taint *v1.Taint) bool {
				return taint.Effect == v1.TaintEffectNoSchedule || taint.Effect == v1.TaintEffectNoExecute
			}, true)
			matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
			tolerant := len(pod.Spec.Tolerations) > 0 && pod.Spec.Tolerations[0].Operator == v1.TolerationOpExists && pod.Spec.Tolerations[0].Key == ""
			if node.Name == name && !untolerated && matches && err == nil && (!node.Spec.Unschedulable || tolerant) {
				names = append(names, name)
			}
		}
	}
	return names
}

func TestEligibleNodesFollowEveryChangeOfTheCluster(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pods := []*v1.Pod{gpuPod("any", 1), gpuPod("zoned", 1), gpuPod("tolerant", 1)}
	withSelector("zone", "a")(pods[1])
	withToleration(v1.Toleration{Operator: v1.TolerationOpExists})(pods[2])
	changes := []func(*v1.Node){cordoned, tainted(v1.TaintEffectNoSchedule), labelled("zone", "a"), labelled("zone", "b"), labelled("unrelated", "x"),
		func(n *v1.Node) { n.Annotations = map[string]string{"pyscheduler.io/in-use": "{}"} }}
	e, nodes := newEligibility(), nodesNamed("n0")
	table := tableOf(1, "n0")
	for step := range 3000 {
		switch i := random.IntN(len(nodes)); random.IntN(12) {
		case 0:
			nodes = append(nodes, nodeNamed(fmt.Sprintf("n%d", step)))
		case 1:
			if len(nodes) > 1 {
				nodes = slices.Delete(slices.Clone(nodes), i, i+1)
			}
		case 2:
			nodes = slices.Clone(nodes)
			random.Shuffle(len(nodes), func(a, b int) { nodes[a], nodes[b] = nodes[b], nodes[a] })
		case 3:
			nodes[i] = nodeNamed(nodes[i].Node().Name)
		case 4:
			if name := nodes[i].Node().Name; !slices.Contains(table.names, name) {
				table = table.extended(&pb.NodesResponse{Epoch: table.epoch, First: uint32(len(table.names)), Names: []string{name}})
			}
		case 5:
			if random.IntN(10) == 0 {
				table = tableOf(table.epoch+1, nodes[i].Node().Name)
			}
		default:
			changed := nodes[i].Node().DeepCopy()
			changes[random.IntN(len(changes))](changed)
			nodes[i] = &fakeNode{node: changed}
		}
		pod := pods[random.IntN(len(pods))]
		if got, want := namesIn(e.of(klog.Background(), pod, nodes, table), table), naive(pod, nodes, table); !slices.Equal(got, want) {
			t.Fatalf("step %d, pod %s: got %v, want %v", step, pod.Name, got, want)
		}
	}
}

func TestEligibleNodesSurviveMoreChangesThanTheLogHolds(t *testing.T) {
	e, table, nodes := newEligibility(), tableOf(1, "a", "b"), nodesNamed("a", "b")
	idle, busy := gpuPod("idle", 1), gpuPod("busy", 1)
	withSelector("zone", "a")(idle)
	e.of(klog.Background(), idle, nodes, table)
	for i := range changesMax + 10 {
		nodes[0] = nodeNamed("a", labelled("zone", string(rune('a'+i%2))))
		e.of(klog.Background(), busy, nodes, table)
	}
	nodes[0] = nodeNamed("a", labelled("zone", "a"))
	if got := namesIn(e.of(klog.Background(), idle, nodes, table), table); !slices.Equal(got, []string{"a"}) {
		t.Errorf("got %v, want [a]", got)
	}
}

func TestOnlyChangesThatMatterAreNoted(t *testing.T) {
	e, table, nodes := newEligibility(), tableOf(1, "a"), nodesNamed("a")
	e.of(klog.Background(), gpuPod("p", 1), nodes, table)
	before := e.noted()
	reported := nodes[0].Node().DeepCopy()
	reported.Annotations = map[string]string{"pyscheduler.io/in-use": "{}"}
	e.of(klog.Background(), gpuPod("p", 1), []fwk.NodeInfo{&fakeNode{node: reported}}, table)
	if e.noted() != before {
		t.Error("an annotation had the node judged again")
	}
}

func BenchmarkEligible(b *testing.B) {
	for _, count := range []int{1000, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", count), func(b *testing.B) {
			names := make([]string, count)
			for i := range names {
				names[i] = fmt.Sprintf("node-%d", i)
			}
			nodes, table, e := nodesNamed(names...), tableOf(1, names...), newEligibility()
			pod := gpuPod("p", 1)
			withToleration(v1.Toleration{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute})(pod)
			b.ReportAllocs()
			for b.Loop() {
				e.of(klog.Background(), pod, nodes, table)
			}
		})
	}
}
