package gputopology

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

// groupKeys are the labels and annotations by which pods are told to belong to a group, in the words of those who make
// groups. What they say the service reads: its list, in pyscheduler/readers, has the same keys.
var groupKeys = []string{
	"pyscheduler.io/group",
	"scheduling.x-k8s.io/pod-group",
	"pod-group.scheduling.sigs.k8s.io",
	"pod-group.scheduling.sigs.k8s.io/name",
	"gang.scheduling.koordinator.sh/name",
	"pod-group-name",
	"kueue.x-k8s.io/pod-group-name",
	"scheduling.k8s.io/group-name",
	"jobset.sigs.k8s.io/jobset-name",
	"leaderworkerset.sigs.k8s.io/name",
	"training.kubeflow.org/job-name",
}

// annotationBytesMax is the longest annotation that is sent: those that tell of groups are short, others may be documents.
const annotationBytesMax = 4096

// isMember reports whether the pod is told to belong to a group.
func isMember(pod *v1.Pod) bool {
	return slices.ContainsFunc(groupKeys, func(key string) bool {
		_, labelled := pod.Labels[key]
		_, annotated := pod.Annotations[key]
		return labelled || annotated
	})
}

// membership returns all that may tell the pod's group and its place there, nil for a pod that belongs to none.
func membership(pod *v1.Pod) *pb.Membership {
	if !isMember(pod) {
		return nil
	}
	annotations := maps.Clone(pod.Annotations)
	maps.DeleteFunc(annotations, func(_, value string) bool { return len(value) > annotationBytesMax })
	return &pb.Membership{Labels: pod.Labels, Annotations: annotations, Controller: controllerOf(pod)}
}

func controllerOf(pod *v1.Pod) *pb.Owner {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return nil
	}
	return &pb.Owner{ApiVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, Uid: string(owner.UID)}
}
