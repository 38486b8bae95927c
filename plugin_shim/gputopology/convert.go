package gputopology

import (
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

const (
	domain                  = "pyscheduler.io/"
	annotationGPUs          = domain + "gpus"
	annotationPlacement     = domain + "placement"
	annotationRank          = domain + "rank"
	annotationRelativeSpeed = domain + "relative-speed"
)

// outputs are written by the Binding; what a user set there is no input.
var outputs = []string{annotationGPUs, annotationPlacement, annotationRank, annotationRelativeSpeed}

// asksForGPUs reports whether any container wants more than 0 of the resources, be it a part of one GPU.
func asksForGPUs(pod *v1.Pod, resources []string) bool {
	asks := func(c v1.Container) bool {
		return slices.ContainsFunc(resources, func(resource string) bool { return requested(c, resource) > 0 })
	}
	return slices.ContainsFunc(pod.Spec.Containers, asks) || slices.ContainsFunc(pod.Spec.InitContainers, asks)
}

// requested returns how many units of the resource the container asks for.
func requested(c v1.Container, resource string) int64 {
	quantity, ok := c.Resources.Requests[v1.ResourceName(resource)]
	if !ok {
		quantity = c.Resources.Limits[v1.ResourceName(resource)]
	}
	return max(quantity.Value(), 0)
}

// describe turns the pod into what the service needs to know of it.
func describe(pod *v1.Pod, resources []string, unitsPerGPU map[string]int64) *pb.Pod {
	return &pb.Pod{
		Uid:        string(pod.UID),
		Namespace:  pod.Namespace,
		Name:       pod.Name,
		Containers: containerRequests(pod, resources, unitsPerGPU),
		Settings:   settings(pod),
		Priority:   corev1helpers.PodPriority(pod),
		Membership: membership(pod),
	}
}

func (p *Plugin) describe(pod *v1.Pod) *pb.Pod {
	return describe(pod, p.args.Resources, p.args.UnitsPerGPU)
}

// containerRequests lists init containers first, as the kubelet starts them.
func containerRequests(pod *v1.Pod, resources []string, unitsPerGPU map[string]int64) []*pb.ContainerRequest {
	var requests []*pb.ContainerRequest
	for _, c := range pod.Spec.InitContainers {
		kind := pb.ContainerRequest_KIND_INIT
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			kind = pb.ContainerRequest_KIND_SIDECAR
		}
		requests = append(requests, requestsOf(c, kind, resources, unitsPerGPU)...)
	}
	for _, c := range pod.Spec.Containers {
		requests = append(requests, requestsOf(c, pb.ContainerRequest_KIND_APP, resources, unitsPerGPU)...)
	}
	return requests
}

// requestsOf counts whole GPUs. A number that does not fit is cut to the largest: no node has as many.
func requestsOf(c v1.Container, kind pb.ContainerRequest_Kind, resources []string, unitsPerGPU map[string]int64) []*pb.ContainerRequest {
	var requests []*pb.ContainerRequest
	for _, resource := range resources {
		if gpus := requested(c, resource) / max(unitsPerGPU[resource], 1); gpus > 0 {
			cut := uint32(min(gpus, math.MaxUint32))
			requests = append(requests, &pb.ContainerRequest{Name: c.Name, Kind: kind, Resource: resource, Gpus: cut})
		}
	}
	return requests
}

// settings returns the inputs among the pod's labels and annotations; an annotation wins over a label.
func settings(pod *v1.Pod) map[string]string {
	var found map[string]string
	for _, source := range []map[string]string{pod.Labels, pod.Annotations} {
		for key, value := range source {
			if !strings.HasPrefix(key, domain) || slices.Contains(outputs, key) {
				continue
			}
			if found == nil {
				found = map[string]string{}
			}
			found[key] = value
		}
	}
	return found
}
