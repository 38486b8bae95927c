package gputopology

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// nodeOf makes a node of this size that runs these pods.
func nodeOf(name, cpu, memory, storage, pods string, running ...*v1.Pod) fwk.NodeInfo {
	node := &v1.Node{}
	node.Name = name
	node.Status.Allocatable = v1.ResourceList{
		"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory),
		"ephemeral-storage": resource.MustParse(storage), "pods": resource.MustParse(pods),
	}
	info := framework.NewNodeInfo(running...)
	info.SetNode(node)
	return info
}

func wanting(amounts map[v1.ResourceName]string) *v1.Pod {
	pod := plainPod("p")
	pod.Spec.Containers = []v1.Container{asking("main", amounts)}
	return pod
}

func TestRoomForSuchPods(t *testing.T) {
	four := map[v1.ResourceName]string{"cpu": "4", "memory": "8Gi", "ephemeral-storage": "10Gi", "nvidia.com/gpu": "8"}
	sidecar := wanting(map[v1.ResourceName]string{"cpu": "1"})
	sidecar.Spec.InitContainers = []v1.Container{asking("init", map[v1.ResourceName]string{"cpu": "4"})}
	sidecar.Spec.Overhead = v1.ResourceList{"cpu": resource.MustParse("1")}
	for name, test := range map[string]struct {
		pod  *v1.Pod
		node fwk.NodeInfo
		want byte
	}{
		"CPU":                        {pod: wanting(four), node: nodeOf("a", "15900m", "1Ti", "1Ti", "110"), want: 3},
		"memory":                     {pod: wanting(four), node: nodeOf("a", "64", "16Gi", "1Ti", "110"), want: 2},
		"ephemeral storage":          {pod: wanting(four), node: nodeOf("a", "64", "1Ti", "19Gi", "110"), want: 1},
		"number of pods":             {pod: wanting(four), node: nodeOf("a", "64", "1Ti", "1Ti", "5", plainPod("x")), want: 4},
		"what runs there":            {pod: wanting(four), node: nodeOf("a", "9", "1Ti", "1Ti", "110", wanting(map[v1.ResourceName]string{"cpu": "2"})), want: 1},
		"exactly":                    {pod: wanting(four), node: nodeOf("a", "8", "16Gi", "20Gi", "2"), want: 2},
		"none":                       {pod: wanting(four), node: nodeOf("a", "3999m", "1Ti", "1Ti", "110"), want: 0},
		"more used than there is":    {pod: wanting(four), node: nodeOf("a", "4", "1Ti", "1Ti", "110", wanting(map[v1.ResourceName]string{"cpu": "9"})), want: 0},
		"more pods than there may":   {pod: plainPod("p"), node: nodeOf("a", "4", "1Ti", "1Ti", "1", plainPod("x"), plainPod("y")), want: 0},
		"nothing asked for":          {pod: plainPod("p"), node: nodeOf("a", "0", "0", "0", "110"), want: 110},
		"as many or more":            {pod: plainPod("p"), node: nodeOf("a", "4", "1Ti", "1Ti", "1000"), want: 255},
		"init container or overhead": {pod: sidecar, node: nodeOf("a", "11", "1Ti", "1Ti", "110"), want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := roomFor(test.pod, []fwk.NodeInfo{test.node}, bitmapOf(1, 0), tableOf(1, "a")); !slices.Equal(got, []byte{test.want}) {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestRoomIsInTheOrderOfTheBits(t *testing.T) {
	var names []string
	var nodes []fwk.NodeInfo
	for i := range 20 {
		names = append(names, fmt.Sprintf("n%d", i))
		nodes = append(nodes, nodeOf(names[i], "1", "1", "1", fmt.Sprint(i)))
	}
	nodes = append(nodes, nodeOf("not in the table", "1", "1", "1", "99"))
	slices.Reverse(nodes)
	if got := roomFor(plainPod("p"), nodes, bitmapOf(20, 3, 8, 17), tableOf(1, names...)); !slices.Equal(got, []byte{3, 8, 17}) {
		t.Errorf("got %d", got)
	}
}

func TestRoomThatPodsLeave(t *testing.T) {
	four := map[v1.ResourceName]string{"cpu": "4", "memory": "8Gi", "ephemeral-storage": "10Gi"}
	goes, stays := wanting(four), wanting(four)
	goes.UID = "goes"
	for name, test := range map[string]struct {
		node fwk.NodeInfo
		want byte
	}{
		"CPU":               {node: nodeOf("a", "12", "1Ti", "1Ti", "110", goes, stays), want: 2},
		"memory":            {node: nodeOf("a", "64", "24Gi", "1Ti", "110", goes, stays), want: 2},
		"ephemeral storage": {node: nodeOf("a", "64", "1Ti", "30Gi", "110", goes, stays), want: 2},
		"number of pods":    {node: nodeOf("a", "64", "1Ti", "1Ti", "3", goes, stays), want: 2},
		"nobody goes":       {node: nodeOf("a", "12", "1Ti", "1Ti", "110", stays, stays), want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			before := test.node.GetRequested().GetMilliCPU()
			got := roomWithout(wanting(four), []fwk.NodeInfo{test.node}, bitmapOf(1, 0), tableOf(1, "a"), func(pod *v1.Pod) bool { return pod.UID == "goes" })
			if !slices.Equal(got, []byte{test.want}) || test.node.GetRequested().GetMilliCPU() != before {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func BenchmarkRoomFor(b *testing.B) {
	for _, count := range []int{1000, 12800} {
		b.Run(fmt.Sprintf("nodes=%d", count), func(b *testing.B) {
			var names []string
			var nodes []fwk.NodeInfo
			for i := range count {
				names = append(names, fmt.Sprintf("node-%d", i))
				nodes = append(nodes, nodeOf(names[i], "64", "1Ti", "1Ti", "110"))
			}
			eligible, table, pod := newBitmap(count), tableOf(1, names...), wanting(map[v1.ResourceName]string{"cpu": "4", "memory": "8Gi"})
			for i := range names {
				eligible.set(uint32(i), true)
			}
			b.ReportAllocs()
			for b.Loop() {
				roomFor(pod, nodes, eligible, table)
			}
		})
	}
}
