package gputopology

import (
	"math"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"
)

// roomFor returns, by eligible node in the order of the bits, how many such pods fit by CPU, memory, ephemeral storage
// and number of pods; 255 stands for as many or more. GPUs are the service's to count.
func roomFor(pod *v1.Pod, nodes []fwk.NodeInfo, eligible bitmap, t *table) []byte {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	cpu, memory, storage := requests.Cpu().MilliValue(), requests.Memory().Value(), requests.StorageEphemeral().Value()
	byIndex := make([]byte, len(t.names))
	for _, node := range nodes {
		i, known := t.lookup(node.Node().Name)
		if !known || !eligible.has(i) {
			continue
		}
		has, used := node.GetAllocatable(), node.GetRequested()
		byIndex[i] = byte(min(
			math.MaxUint8,
			max(int64(has.GetAllowedPodNumber()-len(node.GetPods())), 0),
			times(cpu, has.GetMilliCPU()-used.GetMilliCPU()),
			times(memory, has.GetMemory()-used.GetMemory()),
			times(storage, has.GetEphemeralStorage()-used.GetEphemeralStorage()),
		))
	}
	var room []byte
	for i, fits := range byIndex {
		if eligible.has(uint32(i)) {
			room = append(room, fits)
		}
	}
	return room
}

// times returns how often the request fits into what is free. A request of 0 is never what lacks.
func times(request, free int64) int64 {
	if request <= 0 {
		return math.MaxInt64
	}
	return max(free, 0) / request
}
