package gputopology

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
)

// activator moves pods to the head of the scheduling queue. A pod that is in its
// cycle at that moment is queued again when the cycle fails, so that a wake-up
// which crosses a refusal is not lost.
type activator interface {
	Activate(logger klog.Logger, pods map[string]*v1.Pod)
}

// waiting remembers the pods that were asked about and are not bound yet. A pod
// enters before the service is asked, so every change that the service names it
// for finds it here.
type waiting struct {
	logger klog.Logger
	queue  activator

	mu   sync.Mutex
	pods map[types.UID]*waiter
}

type waiter struct {
	pod *v1.Pod
	// failed: the latest cycle ended with an Error.
	failed bool
	// wide: no candidate passed the other plugins in an earlier cycle.
	wide bool
	// told is why the pod waits, as its latest Event says.
	told string
	// sentOut counts how often the pod was woken to find out whether the service answers.
	sentOut int
	// refused are the planned nodes that other plugins refused, by name.
	refused map[string]refusal
}

type refusal struct {
	why string
	// told: the service knows of it.
	told bool
}

func newWaiting(logger klog.Logger, queue activator) *waiting {
	return &waiting{logger: logger, queue: queue, pods: map[types.UID]*waiter{}}
}

func (w *waiting) enter(pod *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.pods[pod.UID]
	if known == nil {
		known = &waiter{}
		w.pods[pod.UID] = known
	}
	known.pod, known.failed = pod, false
}

func (w *waiting) noteFailed(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.pods[uid]; known != nil {
		known.failed = true
	}
}

// retold notes why the pod waits, and reports whether something else was told of it before.
func (w *waiting) retold(uid types.UID, text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.pods[uid]
	if known == nil || known.told == text {
		return false
	}
	before := known.told
	known.told = text
	return before != ""
}

// widen lets the pod's cycles look at all nodes until it is bound, and wakes it.
func (w *waiting) widen(uid types.UID) {
	w.mu.Lock()
	if known := w.pods[uid]; known != nil {
		known.wide = true
	}
	w.mu.Unlock()
	w.wake(uid)
}

func (w *waiting) isWide(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.pods[uid]
	return known != nil && known.wide
}

// refuse remembers that another plugin refused the pod's planned node, and why.
func (w *waiting) refuse(uid types.UID, node, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.pods[uid]; known != nil {
		if known.refused == nil {
			known.refused = map[string]refusal{}
		}
		known.refused[node] = refusal{why: why}
	}
}

// refusedNodes returns what other plugins said of planned nodes, and those of them that the service was not told of yet.
func (w *waiting) refusedNodes(uid types.UID) (why map[string]string, untold []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	why = map[string]string{}
	if known := w.pods[uid]; known != nil {
		for node, refused := range known.refused {
			why[node] = refused.why
			if !refused.told {
				untold = append(untold, node)
			}
		}
	}
	slices.Sort(untold)
	return why, untold
}

// told remembers that the service was told of these nodes.
func (w *waiting) told(uid types.UID, nodes []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.pods[uid]; known != nil {
		for _, node := range nodes {
			known.refused[node] = refusal{why: known.refused[node].why, told: true}
		}
	}
}

func (w *waiting) forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, uid)
}

func (w *waiting) wake(uids ...types.UID) {
	w.mu.Lock()
	pods := make(map[string]*v1.Pod, len(uids))
	for _, uid := range uids {
		if known := w.pods[uid]; known != nil {
			pods[string(uid)] = known.pod
		}
	}
	w.mu.Unlock()
	w.activate(pods)
}

func (w *waiting) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pods) > 0
}

// wakeOne wakes one pod to find out whether the service answers again: one that
// failed if there is any, and of those the one that was sent out least often.
func (w *waiting) wakeOne() {
	w.mu.Lock()
	var scout types.UID
	for uid, known := range w.pods {
		if best := w.pods[scout]; best == nil || known.scoutsBefore(best) {
			scout = uid
		}
	}
	if known := w.pods[scout]; known != nil {
		known.sentOut++
	}
	w.mu.Unlock()
	w.wake(scout)
}

func (k *waiter) scoutsBefore(other *waiter) bool {
	if k.failed != other.failed {
		return k.failed
	}
	return k.sentOut < other.sentOut
}

func (w *waiting) wakeAll() { w.wakeIf(func(*waiter) bool { return true }) }

func (w *waiting) wakeFailed() { w.wakeIf(func(known *waiter) bool { return known.failed }) }

func (w *waiting) wakeIf(wanted func(*waiter) bool) {
	w.mu.Lock()
	pods := map[string]*v1.Pod{}
	for uid, known := range w.pods {
		if wanted(known) {
			pods[string(uid)] = known.pod
		}
	}
	w.mu.Unlock()
	w.activate(pods)
}

func (w *waiting) activate(pods map[string]*v1.Pod) {
	if len(pods) > 0 {
		w.queue.Activate(w.logger, pods)
	}
}

// prune forgets pods that are bound or gone.
func (w *waiting) prune(lister corev1listers.PodLister) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, known := range w.pods {
		if !isUnbound(lister, known.pod.Namespace, known.pod.Name, uid) {
			delete(w.pods, uid)
		}
	}
}

// isThere reports whether the scheduler's own view still has the pod.
func isThere(lister corev1listers.PodLister, namespace, name string, uid types.UID) bool {
	pod, err := lister.Pods(namespace).Get(name)
	return err == nil && pod.UID == uid
}

// isUnbound reports whether the scheduler's own view still has the pod, without a node.
func isUnbound(lister corev1listers.PodLister, namespace, name string, uid types.UID) bool {
	pod, err := lister.Pods(namespace).Get(name)
	return err == nil && pod.UID == uid && pod.Spec.NodeName == ""
}
