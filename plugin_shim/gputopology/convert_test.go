package gputopology

import (
	"math"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

var bothResources = []string{"nvidia.com/gpu", "amd.com/gpu"}

func asking(name string, amounts map[v1.ResourceName]string) v1.Container {
	requests := v1.ResourceList{}
	for key, amount := range amounts {
		requests[key] = resource.MustParse(amount)
	}
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: requests}}
}

func TestDescribe(t *testing.T) {
	sidecar := asking("sidecar", map[v1.ResourceName]string{"nvidia.com/gpu": "1"})
	sidecar.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	pod := plainPod("p")
	pod.Spec.Priority = ptr.To[int32](1000)
	pod.Spec.InitContainers = []v1.Container{asking("init", map[v1.ResourceName]string{"nvidia.com/gpu": "4"}), sidecar}
	pod.Spec.Containers = []v1.Container{
		asking("main", map[v1.ResourceName]string{"nvidia.com/gpu": "2", "amd.com/gpu": "1", "cpu": "3"}),
		asking("helper", map[v1.ResourceName]string{"cpu": "1", "nvidia.com/gpu": "0"}),
	}
	pod.Labels = map[string]string{"app": "x", "pyscheduler.io/max-link": "5", "pyscheduler.io/gpus": "mine"}
	pod.Annotations = map[string]string{"pyscheduler.io/max-link": "1", "pyscheduler.io/same-numa": "true", "pyscheduler.io/placement": "x",
		"pyscheduler.io/rank": "0", "pyscheduler.io/relative-speed": "1", "notpyscheduler.io/y": "z"}
	want := &pb.Pod{
		Uid: "uid-of-p", Namespace: "team", Name: "p", Priority: 1000,
		Containers: []*pb.ContainerRequest{
			{Name: "init", Kind: pb.ContainerRequest_KIND_INIT, Resource: "nvidia.com/gpu", Gpus: 4},
			{Name: "sidecar", Kind: pb.ContainerRequest_KIND_SIDECAR, Resource: "nvidia.com/gpu", Gpus: 1},
			{Name: "main", Kind: pb.ContainerRequest_KIND_APP, Resource: "nvidia.com/gpu", Gpus: 2},
			{Name: "main", Kind: pb.ContainerRequest_KIND_APP, Resource: "amd.com/gpu", Gpus: 1},
		},
		Settings: map[string]string{"pyscheduler.io/max-link": "1", "pyscheduler.io/same-numa": "true"},
	}
	if got := describe(pod, bothResources, nil); !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestRequestedReadsLimitsAndCutsWhatNoNodeHas(t *testing.T) {
	limited := v1.Container{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{"nvidia.com/gpu": resource.MustParse("3")}}}
	if got := requested(limited, "nvidia.com/gpu"); got != 3 {
		t.Errorf("got %d, want the limit 3", got)
	}
	for name, units := range map[string]map[string]int64{"one": nil, "a hundred": {"nvidia.com/gpu": 100}} {
		c := asking("c", map[v1.ResourceName]string{"nvidia.com/gpu": "9e18"})
		got := requestsOf(c, pb.ContainerRequest_KIND_APP, []string{"nvidia.com/gpu"}, units)
		if len(got) != 1 || got[0].GetGpus() != math.MaxUint32 {
			t.Errorf("units of %s: got %v, want the largest number", name, got)
		}
	}
}

func TestPodsThatAskForGPUs(t *testing.T) {
	inInit := plainPod("init")
	inInit.Spec.InitContainers = []v1.Container{asking("i", map[v1.ResourceName]string{"amd.com/gpu": "1"})}
	mig := plainPod("mig")
	mig.Spec.Containers = []v1.Container{asking("m", map[v1.ResourceName]string{"nvidia.com/mig-1g.5gb": "1"})}
	for name, test := range map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"none":                  {pod: plainPod("p"), want: false},
		"zero":                  {pod: gpuPod("p", 0), want: false},
		"one":                   {pod: gpuPod("p", 1), want: true},
		"init container":        {pod: inInit, want: true},
		"another resource, MIG": {pod: mig, want: false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := asksForGPUs(test.pod, bothResources); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
