package gputopology

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/lru"
)

const (
	// signaturesMax bounds the cached sets: each costs a bit per node.
	signaturesMax = 256
	// changesMax bounds the log of changed nodes; sets older than it are computed anew.
	changesMax = 4096
)

// eligibility knows which nodes a pod's node selector, affinity and tolerations
// admit. Pods of equal wishes share a set. In a steady cluster an answer costs
// one comparison of pointers per node; only nodes whose labels, taints or cordon
// changed are judged again. It reads the scheduler's own snapshot: an informer of
// its own could lag behind the event that woke the pod.
type eligibility struct {
	mu       sync.Mutex
	snapshot []*v1.Node
	byName   map[string]*v1.Node
	// changes are the names of nodes to judge again, oldest first; forgotten counts those cut off.
	changes   []string
	forgotten int
	sets      *lru.Cache
}

func newEligibility() *eligibility {
	return &eligibility{byName: map[string]*v1.Node{}, sets: lru.New(signaturesMax)}
}

// of returns the nodes of the table that admit the pod. The caller owns the result.
func (e *eligibility) of(logger klog.Logger, pod *v1.Pod, nodes []fwk.NodeInfo, t *table) bitmap {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observe(nodes)
	s := e.setFor(pod)
	s.mend(logger, e, t)
	return slices.Clone(s.nodes)
}

func (e *eligibility) observe(nodes []fwk.NodeInfo) {
	if len(nodes) != len(e.snapshot) {
		e.observeAnew(nodes)
		return
	}
	for i, info := range nodes {
		node, before := info.Node(), e.snapshot[i]
		if node == before {
			continue
		}
		if node.Name != before.Name {
			e.observeAnew(nodes)
			return
		}
		e.snapshot[i], e.byName[node.Name] = node, node
		if admissionChanged(before, node) {
			e.note(node.Name)
		}
	}
}

// observeAnew is for nodes that joined, left, or stand in another order.
func (e *eligibility) observeAnew(nodes []fwk.NodeInfo) {
	before := e.byName
	e.snapshot, e.byName = make([]*v1.Node, len(nodes)), make(map[string]*v1.Node, len(nodes))
	for i, info := range nodes {
		node := info.Node()
		e.snapshot[i], e.byName[node.Name] = node, node
		if old := before[node.Name]; old == nil || admissionChanged(old, node) {
			e.note(node.Name)
		}
	}
	for name := range before {
		if e.byName[name] == nil {
			e.note(name)
		}
	}
}

func (e *eligibility) note(name string) {
	if len(e.changes) == changesMax {
		e.forgotten += changesMax
		e.changes = e.changes[:0]
	}
	e.changes = append(e.changes, name)
}

func (e *eligibility) noted() int { return e.forgotten + len(e.changes) }

func admissionChanged(a, b *v1.Node) bool {
	return a.Spec.Unschedulable != b.Spec.Unschedulable ||
		!slices.EqualFunc(a.Spec.Taints, b.Spec.Taints, func(s, t v1.Taint) bool { return s.MatchTaint(&t) && s.Value == t.Value }) ||
		!maps.Equal(a.Labels, b.Labels)
}

// wishes is what decides which nodes admit a pod, and the key of the cache.
type wishes struct {
	NodeSelector map[string]string `json:",omitempty"`
	Affinity     *v1.NodeSelector  `json:",omitempty"`
	Tolerations  []v1.Toleration   `json:",omitempty"`
}

func wishesOf(pod *v1.Pod) wishes {
	w := wishes{NodeSelector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		w.Affinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return w
}

func (e *eligibility) setFor(pod *v1.Pod) *eligibleSet {
	key, err := json.Marshal(wishesOf(pod))
	if err != nil {
		panic(err) // Strings, integers, and maps and slices of them: there is nothing that could fail.
	}
	if cached, ok := e.sets.Get(string(key)); ok {
		return cached.(*eligibleSet)
	}
	s := &eligibleSet{admission: admissionOf(pod)}
	e.sets.Add(string(key), s)
	return s
}

// admission decides whether a node admits a pod.
type admission struct {
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []v1.Toleration
}

func admissionOf(pod *v1.Pod) admission {
	return admission{affinity: nodeaffinity.GetRequiredNodeAffinity(pod), tolerations: pod.Spec.Tolerations}
}

// eligibleSet is the set of nodes that admit pods of the same wishes.
type eligibleSet struct {
	admission
	// nodes refers to the table of this epoch; judged is how many names of it were judged.
	nodes  bitmap
	epoch  uint64
	judged int
	// mended is the position in the log of changed nodes.
	mended int
}

// mend brings the set up to the newest nodes and to the table.
func (s *eligibleSet) mend(logger klog.Logger, e *eligibility, t *table) {
	if s.epoch != t.epoch || s.mended < e.forgotten {
		s.nodes, s.epoch, s.judged, s.mended = nil, t.epoch, 0, e.noted()
	}
	if grown := newBitmap(len(t.names)); len(grown) > len(s.nodes) {
		copy(grown, s.nodes)
		s.nodes = grown
	}
	for _, name := range e.changes[s.mended-e.forgotten:] {
		s.judge(logger, e, t, name)
	}
	for _, name := range t.names[s.judged:] {
		s.judge(logger, e, t, name)
	}
	s.judged, s.mended = len(t.names), e.noted()
}

func (s *eligibleSet) judge(logger klog.Logger, e *eligibility, t *table, name string) {
	if i, known := t.lookup(name); known {
		node := e.byName[name]
		s.nodes.set(i, node != nil && s.admits(logger, node))
	}
}

var cordon = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

// admits decides as the plugins NodeUnschedulable, TaintToleration and NodeAffinity do.
func (a admission) admits(logger klog.Logger, node *v1.Node) bool {
	if node.Spec.Unschedulable && !a.tolerates(logger, cordon) {
		return false
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect != v1.TaintEffectPreferNoSchedule && !a.tolerates(logger, taint) {
			return false
		}
	}
	matches, err := a.affinity.Match(node)
	return err == nil && matches
}

// tolerates lets the comparison operators Lt and Gt pass in every case: the API
// server refuses them where the feature is off.
func (a admission) tolerates(logger klog.Logger, taint v1.Taint) bool {
	return corev1helpers.TolerationsTolerateTaint(logger, a.tolerations, &taint, true)
}
