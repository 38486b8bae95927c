package gputopology

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/parallelize"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

const (
	patience = 30 * time.Second
	// testTimeout is the calls' deadline in tests that do not test it.
	testTimeout = "10s"
)

// The scheduler registers its metrics before it makes plugins.
func TestMain(m *testing.M) {
	schedulermetrics.Register()
	m.Run()
}

// fakeService answers with what its fields say, on a real unix socket.
type fakeService struct {
	pb.UnimplementedSchedulerPluginServer
	server *grpc.Server
	health *health.Server
	// changes feeds the stream after its first message.
	changes chan *pb.ChangesResponse

	mu        sync.Mutex
	epoch     uint64
	names     []string
	filter    func(*pb.FilterRequest) (*pb.FilterResponse, error)
	plan      func(*pb.PlanRequest) (*pb.PlanResponse, error)
	score     func(*pb.ScoreRequest) (*pb.ScoreResponse, error)
	reserve   func(*pb.ReserveRequest) (*pb.ReserveResponse, error)
	unreserve func(*pb.UnreserveRequest) error
	preempt   func(*pb.PreemptRequest) (*pb.PreemptResponse, error)
	conflict  []string
	// newestSession is what it says in Nodes.
	newestSession int64
	calls         map[string]int
	// resyncs and unreserves carry every request.
	resyncs    chan *pb.ResyncRequest
	unreserves chan *pb.UnreserveRequest
}

func newFakeService(names ...string) *fakeService {
	return &fakeService{
		epoch: 7, names: names, calls: map[string]int{},
		changes: make(chan *pb.ChangesResponse, 16), resyncs: make(chan *pb.ResyncRequest, 256), unreserves: make(chan *pb.UnreserveRequest, 256),
	}
}

func (f *fakeService) serve(t *testing.T, socket string) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server, healthServer := grpc.NewServer(), health.NewServer()
	pb.RegisterSchedulerPluginServer(server, f)
	healthpb.RegisterHealthServer(server, healthServer)
	healthServer.SetServingStatus(pb.SchedulerPlugin_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	f.server, f.health = server, healthServer
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
}

func (f *fakeService) do(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeService) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

func (f *fakeService) Nodes(_ context.Context, request *pb.NodesRequest) (*pb.NodesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls["Nodes"]++
	first := uint32(0)
	if request.GetEpoch() == f.epoch {
		first = request.GetKnown()
	}
	return &pb.NodesResponse{Epoch: f.epoch, First: first, Names: f.names[first:], NewestSession: f.newestSession}, nil
}

func (f *fakeService) Filter(_ context.Context, request *pb.FilterRequest) (*pb.FilterResponse, error) {
	f.mu.Lock()
	f.calls["Filter"]++
	filter := f.filter
	f.mu.Unlock()
	return filter(request)
}

func (f *fakeService) Plan(_ context.Context, request *pb.PlanRequest) (*pb.PlanResponse, error) {
	f.mu.Lock()
	f.calls["Plan"]++
	plan := f.plan
	f.mu.Unlock()
	return plan(request)
}

func (f *fakeService) Score(_ context.Context, request *pb.ScoreRequest) (*pb.ScoreResponse, error) {
	f.mu.Lock()
	f.calls["Score"]++
	score := f.score
	f.mu.Unlock()
	return score(request)
}

func (f *fakeService) Reserve(_ context.Context, request *pb.ReserveRequest) (*pb.ReserveResponse, error) {
	f.mu.Lock()
	f.calls["Reserve"]++
	reserve := f.reserve
	f.mu.Unlock()
	return reserve(request)
}

func (f *fakeService) Preempt(_ context.Context, request *pb.PreemptRequest) (*pb.PreemptResponse, error) {
	f.mu.Lock()
	f.calls["Preempt"]++
	preempt := f.preempt
	f.mu.Unlock()
	return preempt(request)
}

func (f *fakeService) Unreserve(_ context.Context, request *pb.UnreserveRequest) (*pb.UnreserveResponse, error) {
	f.mu.Lock()
	act := f.unreserve
	f.mu.Unlock()
	f.unreserves <- request
	if act != nil {
		if err := act(request); err != nil {
			return nil, err
		}
	}
	return &pb.UnreserveResponse{}, nil
}

func (f *fakeService) Resync(_ context.Context, request *pb.ResyncRequest) (*pb.ResyncResponse, error) {
	f.resyncs <- request
	f.mu.Lock()
	defer f.mu.Unlock()
	return &pb.ResyncResponse{Epoch: f.epoch, TableSize: uint32(len(f.names)), ServiceVersion: Version, Conflicts: f.conflict}, nil
}

func (f *fakeService) Changes(_ *pb.ChangesRequest, stream grpc.ServerStreamingServer[pb.ChangesResponse]) error {
	f.mu.Lock()
	first := &pb.ChangesResponse{Epoch: f.epoch, TableSize: uint32(len(f.names))}
	f.mu.Unlock()
	if err := stream.Send(first); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case change := <-f.changes:
			if err := stream.Send(change); err != nil {
				return err
			}
		}
	}
}

// feasible answers OK with the given nodes as candidates, best first.
func (f *fakeService) feasible(nodes ...uint32) func(*pb.FilterRequest) (*pb.FilterResponse, error) {
	return func(*pb.FilterRequest) (*pb.FilterResponse, error) {
		return f.accepting(nodes...), nil
	}
}

func (f *fakeService) accepting(nodes ...uint32) *pb.FilterResponse {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &pb.FilterResponse{
		Verdict: &pb.Verdict{Code: pb.Verdict_CODE_OK}, Epoch: f.epoch, TableSize: uint32(len(f.names)), Generation: 1,
		Feasible: bitmapOf(len(f.names), nodes...),
	}
	for rank, node := range nodes {
		answer.Candidates = append(answer.Candidates, &pb.Candidate{Node: node, Score: uint32(100 - rank)})
	}
	return answer
}

// refusing answers with the code for all nodes, of which some no eviction can cure.
func (f *fakeService) refusing(code pb.Verdict_Code, reason string, unresolvable ...uint32) func(*pb.FilterRequest) (*pb.FilterResponse, error) {
	return func(*pb.FilterRequest) (*pb.FilterResponse, error) {
		return &pb.FilterResponse{
			Verdict: &pb.Verdict{Code: code, Reason: reason}, Epoch: f.epoch, Generation: 1,
			Unresolvable: bitmapOf(len(f.names), unresolvable...),
		}, nil
	}
}

func reserving(gpus string) func(*pb.ReserveRequest) (*pb.ReserveResponse, error) {
	return func(*pb.ReserveRequest) (*pb.ReserveResponse, error) {
		return &pb.ReserveResponse{
			Verdict: &pb.Verdict{Code: pb.Verdict_CODE_OK}, Generation: 1,
			Annotations: map[string]string{annotationGPUs: gpus, annotationPlacement: "{}"},
		}, nil
	}
}

// planning answers Plan and Reserve of every member with its place in this plan: the first node, or none without GPUs.
func (f *fakeService) planning(member *pb.PlanMember) {
	f.do(func() {
		f.plan = func(request *pb.PlanRequest) (*pb.PlanResponse, error) {
			answer := &pb.PlanResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_OK}, Generation: 1, Member: member}
			f.do(func() { answer.Epoch, answer.TableSize = f.epoch, uint32(len(f.names)) })
			if len(request.GetPod().GetContainers()) > 0 {
				answer.Node = new(uint32)
			}
			return answer, nil
		}
		f.reserve = func(request *pb.ReserveRequest) (*pb.ReserveResponse, error) {
			answer, err := reserving(`{"main":["GPU-1"]}`)(request)
			answer.Member = member
			return answer, err
		}
	})
}

func planOf(name string, needed uint32) *pb.PlanMember {
	return &pb.PlanMember{Plan: name, Group: "team/job", Needed: needed}
}

func bitmapOf(size int, nodes ...uint32) bitmap {
	b := newBitmap(size)
	for _, i := range nodes {
		b.set(i, true)
	}
	return b
}

// fakeHandle has what the plugin uses of the framework. woken carries each activated UID.
type fakeHandle struct {
	fwk.Handle
	clientset kubernetes.Interface
	factory   informers.SharedInformerFactory
	woken     chan types.UID
	nodes     []fwk.NodeInfo
	permit    fakePermitQueue
	// plugin is asked first by Filter, then the others.
	plugin *Plugin
	others func(fwk.NodeInfo) *fwk.Status
}

func (h *fakeHandle) ClientSet() kubernetes.Interface                        { return h.clientset }
func (h *fakeHandle) SnapshotSharedLister() fwk.SharedLister                 { return snapshot{nodes: h.nodes} }
func (h *fakeHandle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
func (h *fakeHandle) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	for _, pod := range pods {
		h.woken <- pod.UID
	}
}

func (h *fakeHandle) MutableSnapshotSharedLister() fwk.MutableSnapshotSharedLister {
	return mutableSnapshot{lists: nodeLists{nodes: h.nodes}}
}
func (h *fakeHandle) Parallelizer() fwk.Parallelizer             { return parallelize.NewParallelizer(4) }
func (h *fakeHandle) Extenders() []fwk.Extender                  { return nil }
func (h *fakeHandle) NominatedPodsForNode(string) []fwk.PodInfo  { return nil }
func (h *fakeHandle) GetWaitingPod(uid types.UID) fwk.WaitingPod { return h.permit.GetWaitingPod(uid) }
func (h *fakeHandle) GetPodInPreBind(types.UID) fwk.PodInPreBind { return nil }
func (h *fakeHandle) APICacher() fwk.APICacher                   { return nil }
func (h *fakeHandle) EventRecorder() events.EventRecorderLogger  { return events.NewFakeRecorder(1024) }
func (h *fakeHandle) RunFilterPluginsWithNominatedPods(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	if refusal := h.plugin.Filter(ctx, state, pod, node); !refusal.IsSuccess() || h.others == nil {
		return refusal
	}
	return h.others(node)
}

func (h *fakeHandle) RunPreFilterExtensionRemovePod(ctx context.Context, state fwk.CycleState, pod *v1.Pod, gone fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	return h.plugin.PreFilterExtensions().RemovePod(ctx, state, pod, gone, node)
}

func (h *fakeHandle) RunPreFilterExtensionAddPod(ctx context.Context, state fwk.CycleState, pod *v1.Pod, back fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	return h.plugin.PreFilterExtensions().AddPod(ctx, state, pod, back, node)
}

// fakePermitQueue holds the pods that wait in Permit.
type fakePermitQueue struct {
	mu   sync.Mutex
	pods map[types.UID]*fakeWaitingPod
}

// allowed is what a waiting pod is told that may go on.
const allowed = "allowed"

// fakeWaitingPod is told once, like the framework's, how its wait ends.
type fakeWaitingPod struct {
	fwk.WaitingPod
	told chan string
}

// begin has the pod wait, as the framework does after all Permit plugins have returned.
func (q *fakePermitQueue) begin(uid types.UID) *fakeWaitingPod {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods == nil {
		q.pods = map[types.UID]*fakeWaitingPod{}
	}
	q.pods[uid] = &fakeWaitingPod{told: make(chan string, 1)}
	return q.pods[uid]
}

func (q *fakePermitQueue) end(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.pods, uid)
}

func (q *fakePermitQueue) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	q.mu.Lock()
	defer q.mu.Unlock()
	if waiting := q.pods[uid]; waiting != nil {
		return waiting
	}
	return nil
}

func (w *fakeWaitingPod) Allow(string) { w.tell(allowed) }

func (w *fakeWaitingPod) Reject(_, why string) bool { return w.tell(why) }

func (w *fakeWaitingPod) tell(what string) bool {
	select {
	case w.told <- what:
		return true
	default:
		return false
	}
}

// see puts the pod into the scheduler's own view of the cluster.
func (h *fakeHandle) see(t *testing.T, pod *v1.Pod) {
	t.Helper()
	if err := h.factory.Core().V1().Pods().Informer().GetIndexer().Add(pod); err != nil {
		t.Fatal(err)
	}
}

// fakeState is a CycleState without the framework's own marks.
type fakeState struct {
	fwk.CycleState
	data map[fwk.StateKey]fwk.StateData
}

func newState() *fakeState { return &fakeState{data: map[fwk.StateKey]fwk.StateData{}} }

func (s *fakeState) Write(key fwk.StateKey, value fwk.StateData) { s.data[key] = value }

func (s *fakeState) Read(key fwk.StateKey) (fwk.StateData, error) {
	if value, ok := s.data[key]; ok {
		return value, nil
	}
	return nil, fwk.ErrNotFound
}

func (s *fakeState) Clone() fwk.CycleState {
	clone := newState()
	for key, value := range s.data {
		clone.data[key] = value.Clone()
	}
	return clone
}

type fakeNode struct {
	fwk.NodeInfo
	node *v1.Node
}

func (n *fakeNode) Node() *v1.Node { return n.node }

func nodeNamed(name string, change ...func(*v1.Node)) *fakeNode {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}}}
	for _, c := range change {
		c(node)
	}
	info := framework.NewNodeInfo()
	info.SetNode(node)
	return &fakeNode{NodeInfo: info, node: node}
}

func nodesNamed(names ...string) []fwk.NodeInfo {
	var nodes []fwk.NodeInfo
	for _, name := range names {
		nodes = append(nodes, nodeNamed(name))
	}
	return nodes
}

func plainPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-of-" + name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
	}
}

func gpuPod(name string, gpus int64) *v1.Pod {
	pod := plainPod(name)
	quantity := *resource.NewQuantity(gpus, resource.DecimalSI)
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{"nvidia.com/gpu": quantity}
	return pod
}

// memberOf makes the pod a member of a group.
func memberOf(group string, pod *v1.Pod) *v1.Pod {
	pod.Labels = map[string]string{"pyscheduler.io/group": group}
	return pod
}

// fakeAPI is an API server that knows one pod's Binding, one read, and how pods are evicted.
type fakeAPI struct {
	mu   sync.Mutex
	bind http.HandlerFunc
	get  http.HandlerFunc
	// evicted carries the name of each pod that is deleted.
	evicted chan string
}

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	bind, get := a.bind, a.get
	a.mu.Unlock()
	switch r.Method {
	case http.MethodPost:
		bind(w, r)
	case http.MethodPatch: // Why it is evicted.
		answerJSON(w, http.StatusOK, &v1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}})
	case http.MethodDelete:
		a.evicted <- path.Base(r.URL.Path)
		answerJSON(w, http.StatusOK, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
	default:
		get(w, r)
	}
}

// testBench is a plugin between a fake service, a fake framework and a fake API server.
type testBench struct {
	t       *testing.T
	ctx     context.Context
	socket  string
	service *fakeService
	handle  *fakeHandle
	api     *fakeAPI
	plugin  *Plugin
	// told keeps the Events that the plugin writes itself.
	told *record.FakeRecorder
}

// newTestBench starts a plugin on a socket where nobody listens yet.
func newTestBench(t *testing.T, args map[string]string) *testBench {
	t.Helper()
	dir, err := os.MkdirTemp("", "shim") // t.TempDir() may be too long for a socket.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &testBench{t: t, socket: filepath.Join(dir, "s.sock"), api: &fakeAPI{evicted: make(chan string, 64)}, told: record.NewFakeRecorder(1024)}
	_, b.ctx = ktesting.NewTestContext(t)
	server := httptest.NewServer(b.api)
	t.Cleanup(server.Close)
	clientset, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	b.handle = &fakeHandle{clientset: clientset, factory: informers.NewSharedInformerFactory(clientset, 0), woken: make(chan types.UID, 1024)}
	b.plugin = b.newPlugin(args)
	b.handle.plugin = b.plugin
	return b
}

func (b *testBench) newPlugin(args map[string]string) *Plugin {
	b.t.Helper()
	all := map[string]string{"endpoint": endpointScheme + b.socket, "filterTimeout": testTimeout, "planTimeout": testTimeout, "callTimeout": testTimeout}
	maps.Copy(all, args)
	document := ""
	for key, value := range all {
		document += fmt.Sprintf("%s: %q\n", key, value)
	}
	plugin, err := New(b.ctx, &runtime.Unknown{Raw: []byte(document)}, b.handle)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = plugin.(*Plugin).Close() })
	plugin.(*Plugin).teller.recorder = b.told
	return plugin.(*Plugin)
}

// connected starts the service and waits until the shim has greeted it.
func connected(t *testing.T, service *fakeService, args map[string]string) *testBench {
	t.Helper()
	b := newTestBench(t, args)
	b.service = service
	service.serve(t, b.socket)
	receive(t, service.resyncs, "the first Resync")
	eventually(t, "the greeting", b.plugin.link.following.Load)
	return b
}

func (b *testBench) preFilter(pod *v1.Pod, nodes []fwk.NodeInfo) (*fakeState, *fwk.PreFilterResult, *fwk.Status) {
	state := newState()
	result, status := b.plugin.PreFilter(b.ctx, state, pod, nodes)
	return state, result, status
}

// toPermit takes a member through a cycle until it has been in Permit.
func (b *testBench) toPermit(pod *v1.Pod) (*fakeState, *fwk.Status) {
	b.t.Helper()
	state, _, got := b.preFilter(pod, nodesNamed(abc...))
	wantStatus(b.t, got, fwk.Success, "")
	wantStatus(b.t, b.plugin.Reserve(b.ctx, state, pod, "a"), fwk.Success, "")
	status, _ := b.plugin.Permit(b.ctx, state, pod, "a")
	return state, status
}

// waits takes a member through a cycle until it waits for the others.
func (b *testBench) waits(pod *v1.Pod) (*fakeState, *fakeWaitingPod) {
	b.t.Helper()
	state, status := b.toPermit(pod)
	wantStatus(b.t, status, fwk.Wait, "")
	return state, b.handle.permit.begin(pod.UID)
}

func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("%s did not come", what)
}

func wantStatus(t *testing.T, got *fwk.Status, code fwk.Code, message string) {
	t.Helper()
	if got.Code() != code || got.Message() != message {
		t.Fatalf("status is %s %q, want %s %q", got.Code(), got.Message(), code, message)
	}
}

// snapshot is the scheduler's view of these nodes.
type snapshot struct {
	fwk.SharedLister
	nodes []fwk.NodeInfo
}

func (s snapshot) NodeInfos() fwk.NodeInfoLister { return nodeLists{nodes: s.nodes} }

type nodeLists struct {
	fwk.NodeInfoLister
	nodes []fwk.NodeInfo
}

func (l nodeLists) List() ([]fwk.NodeInfo, error) { return l.nodes, nil }
func (l nodeLists) Get(name string) (fwk.NodeInfo, error) {
	for _, node := range l.nodes {
		if node.Node().Name == name {
			return node, nil
		}
	}
	return nil, fmt.Errorf("node %s is not known", name)
}

type mutableSnapshot struct {
	fwk.MutableSnapshotSharedLister
	lists nodeLists
}

func (s mutableSnapshot) NodeInfos() fwk.NodeInfoLister { return s.lists }

// statuses is what the plugins said of each node.
type statuses map[string]*fwk.Status

func (s statuses) Get(name string) *fwk.Status { return s[name] }
func (s statuses) NodesForStatusCode(fwk.NodeInfoLister, fwk.Code) ([]fwk.NodeInfo, error) {
	return nil, nil
}
