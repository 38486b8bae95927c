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
	return roomWithout(pod, nodes, eligible, t, nil)
}

// roomWithout counts as if the pods that go were gone.
func roomWithout(pod *v1.Pod, nodes []fwk.NodeInfo, eligible bitmap, t *table, goes func(*v1.Pod) bool) []byte {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	cpu, memory, storage := requests.Cpu().MilliValue(), requests.Memory().Value(), requests.StorageEphemeral().Value()
	byIndex := make([]byte, len(t.names))
	for _, node := range nodes {
		i, known := t.lookup(node.Node().Name)
		if !known || !eligible.has(i) {
			continue
		}
		left := freeOn(node, goes)
		byIndex[i] = byte(min(
			math.MaxUint8,
			max(left.pods, 0),
			times(cpu, left.cpu),
			times(memory, left.memory),
			times(storage, left.storage),
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

// free is what a node has left. Less than nothing where more is used than there is.
type free struct{ pods, cpu, memory, storage int64 }

// freeOn returns what is free when the pods that go are gone; nil: nobody goes.
func freeOn(node fwk.NodeInfo, goes func(*v1.Pod) bool) free {
	has, used := node.GetAllocatable(), node.GetRequested()
	left := free{
		pods:    int64(has.GetAllowedPodNumber() - len(node.GetPods())),
		cpu:     has.GetMilliCPU() - used.GetMilliCPU(),
		memory:  has.GetMemory() - used.GetMemory(),
		storage: has.GetEphemeralStorage() - used.GetEphemeralStorage(),
	}
	if goes == nil {
		return left
	}
	for _, info := range node.GetPods() {
		if goes(info.GetPod()) {
			// As it was added to what is requested of the node.
			freed := info.CalculateResource().Resource
			left.pods++
			left.cpu += freed.GetMilliCPU()
			left.memory += freed.GetMemory()
			left.storage += freed.GetEphemeralStorage()
		}
	}
	return left
}

// times returns how often the request fits into what is free. A request of 0 is never what lacks.
func times(request, free int64) int64 {
	if request <= 0 {
		return math.MaxInt64
	}
	return max(free, 0) / request
}
