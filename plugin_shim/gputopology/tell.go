package gputopology

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

const reasonFailed = "FailedScheduling"

// teller writes the Events that would not show otherwise. The framework's
// recorder takes each failure of a pod for a repetition of the first one, and
// keeps the words of that for minutes (getKey of client-go's tools/events leaves
// the note out). So the first text of a pod is the framework's to tell, and every other one ours.
type teller struct {
	recorder    record.EventRecorder
	broadcaster record.EventBroadcaster
}

func newTeller(client kubernetes.Interface) *teller {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	source := v1.EventSource{Component: "gpu-topology"}
	return &teller{recorder: broadcaster.NewRecorder(scheme.Scheme, source), broadcaster: broadcaster}
}

func (t *teller) stop() { t.broadcaster.Shutdown() }

// tell writes why the pod waits, if that is not what was told of it last.
func (p *Plugin) tell(pod *v1.Pod, text string) {
	if p.link.waiting.retold(pod.UID, text) {
		p.teller.recorder.Event(pod, v1.EventTypeWarning, reasonFailed, text)
	}
}
