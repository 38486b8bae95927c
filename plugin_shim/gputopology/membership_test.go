package gputopology

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

func TestGroupKeysAreThoseThatTheServiceReads(t *testing.T) {
	source, err := os.ReadFile("../../pyscheduler/readers/gangs.py")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?s)\nGROUP_KEYS[^=]*=\s*frozenset\(\s*\(([^)]*)\)`).FindSubmatch(source)
	if list == nil {
		t.Fatal("GROUP_KEYS was not found in pyscheduler/readers/gangs.py")
	}
	var want []string
	for _, quoted := range regexp.MustCompile(`"([^"]+)"`).FindAllSubmatch(list[1], -1) {
		want = append(want, string(quoted[1]))
	}
	got := slices.Clone(groupKeys)
	slices.Sort(got)
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("the plugin has %q, the service %q: change both", got, want)
	}
}

func TestMembership(t *testing.T) {
	labelled, annotated, plain := plainPod("labelled"), plainPod("annotated"), plainPod("plain")
	labelled.Labels = map[string]string{"jobset.sigs.k8s.io/jobset-name": "job", "app": "x"}
	labelled.Annotations = map[string]string{"longest": strings.Repeat("x", 4096), "longer": strings.Repeat("x", 4097)}
	labelled.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "1"},
		{APIVersion: "batch/v1", Kind: "Job", Name: "job-0", UID: "2", Controller: ptr.To(true)},
	}
	annotated.Annotations = map[string]string{"pyscheduler.io/group": "job"}
	plain.Labels = map[string]string{"pyscheduler.io/groups": "job"}
	plain.OwnerReferences = labelled.OwnerReferences
	for _, test := range []struct {
		pod  *v1.Pod
		want *pb.Membership
	}{
		{pod: labelled, want: &pb.Membership{
			Labels:      labelled.Labels,
			Annotations: map[string]string{"longest": strings.Repeat("x", 4096)},
			Controller:  &pb.Owner{ApiVersion: "batch/v1", Kind: "Job", Name: "job-0", Uid: "2"},
		}},
		{pod: annotated, want: &pb.Membership{Annotations: annotated.Annotations}},
		{pod: plain},
	} {
		t.Run(test.pod.Name, func(t *testing.T) {
			if got := describe(test.pod, bothResources, nil).GetMembership(); !proto.Equal(got, test.want) || (got == nil) != (test.want == nil) {
				t.Errorf("got  %v\nwant %v", got, test.want)
			}
		})
	}
	if len(labelled.Annotations) != 2 {
		t.Error("the pod itself was changed")
	}
}

func TestMembersAreNotBatched(t *testing.T) {
	b := newTestBench(t, nil)
	for name, test := range map[string]struct {
		pod  *v1.Pod
		want fwk.Code
	}{
		"plain":    {pod: plainPod("p"), want: fwk.Success},
		"GPUs":     {pod: gpuPod("p", 1), want: fwk.Unschedulable},
		"launcher": {pod: memberOf("job", plainPod("p")), want: fwk.Unschedulable},
	} {
		if _, got := b.plugin.SignPod(b.ctx, test.pod); got.Code() != test.want {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
}
