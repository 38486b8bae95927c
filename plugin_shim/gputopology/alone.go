package gputopology

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

const reasonLeftAlone = "LeftAlone"

// leavesAlone reports whether the pod asks for a part of a GPU. Such a pod is treated as one without GPUs that belongs to no
// group: which card it shares with whom is for its device plugin to say.
func (p *Plugin) leavesAlone(pod *v1.Pod) bool { return p.partOfGPU(pod) != "" }

// partOfGPU says which container asks for a part of a GPU; empty if none does.
func (p *Plugin) partOfGPU(pod *v1.Pod) string {
	for _, resource := range p.args.Resources {
		units := max(p.args.UnitsPerGPU[resource], 1)
		if units == 1 {
			continue
		}
		takesPart := func(c v1.Container) bool { return requested(c, resource)%units != 0 }
		for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			if i := slices.IndexFunc(containers, takesPart); i >= 0 {
				c := containers[i]
				return fmt.Sprintf("container %s asks for %d of %s, of which %d are one GPU", c.Name, requested(c, resource), resource, units)
			}
		}
	}
	return ""
}

// tellLeftAlone tells why no GPUs were chosen for a pod that asks for some.
func (p *Plugin) tellLeftAlone(pod *v1.Pod) {
	if part := p.partOfGPU(pod); part != "" {
		p.teller.recorder.Eventf(pod, v1.EventTypeNormal, reasonLeftAlone,
			"No GPUs were chosen for the pod: %s. Links between GPUs count only for pods whose containers ask for whole GPUs.", part)
	}
}
