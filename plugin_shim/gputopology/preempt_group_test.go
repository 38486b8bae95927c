package gputopology

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	"k8s.io/utils/ptr"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

// urgentMember belongs to a group that comes before all that runs.
func urgentMember(name string) *v1.Pod {
	pod := memberOf("urgent", gpuPod(name, 2))
	pod.Spec.Priority = ptr.To[int32](preemptorPriority)
	return pod
}

// withGPU has the pod ask for a GPU beside its CPU.
func withGPU(pod *v1.Pod) {
	pod.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
}

// newGroupPreemptBench is a plugin whose service refuses every group for room that pods of lower priority have.
func newGroupPreemptBench(t *testing.T, running ...*v1.Pod) *preemptBench {
	t.Helper()
	b := newPreemptBench(t, running...)
	b.service.do(func() {
		b.service.plan = func(request *pb.PlanRequest) (*pb.PlanResponse, error) {
			answer, err := planRefusing(pb.Verdict_CODE_UNSCHEDULABLE, "no room for the group")(request)
			answer.Preempt = true
			return answer, err
		}
	})
	return b
}

// name lets the service answer every Preempt with these victims.
func (b *preemptBench) name(victims ...string) {
	b.answerPreempt(func() (*pb.PreemptResponse, error) {
		return &pb.PreemptResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_OK}, VictimUids: victims}, nil
	})
}

func (b *preemptBench) answerPreempt(answer func() (*pb.PreemptResponse, error)) {
	b.service.do(func() {
		b.service.preempt = func(request *pb.PreemptRequest) (*pb.PreemptResponse, error) {
			b.mu.Lock()
			b.asked = append(b.asked, request)
			b.mu.Unlock()
			return answer()
		}
	})
}

// wantStillRefused takes the member through a cycle at the end of which it is nominated for no node.
func (b *preemptBench) wantStillRefused(pod *v1.Pod) {
	b.t.Helper()
	result, got := b.postFilter(pod)
	wantStatus(b.t, got, fwk.UnschedulableAndUnresolvable, "")
	if result != nil {
		b.t.Errorf("the nomination is changed to %v", result)
	}
	if held := b.nominations(); len(held) > 0 {
		b.t.Errorf("Resync carries %v", held)
	}
}

func (b *preemptBench) wantUntold() {
	b.t.Helper()
	if len(b.told.Events) > 0 {
		b.t.Errorf("told %q", <-b.told.Events)
	}
}

func TestThePodsThatAreNamedForAGroupAreEvictedOnAllNodes(t *testing.T) {
	b := newGroupPreemptBench(t, runningPod("a1", "a", 0), inGroup(runningPod("b1", "b", 1)), inGroup(runningPod("c1", "c", 1)), runningPod("c2", "c", 0),
		runningPod("b2", "b", 0, leaving))
	b.name("uid-of-a1", "uid-of-b1", "uid-of-c1", "uid-of-b2", "uid-of-gone")
	pod := urgentMember("m1")
	b.wantStillRefused(pod)
	b.wantEvicted("a1", "b1", "c1")
	if told := receive(t, b.told.Events, "an Event"); told != "Normal Preempting preempting 3 pods of lower priority for the group of the pod" {
		t.Errorf("told %q", told)
	}
	if request := b.asked[0]; request.GetPod().GetUid() != string(pod.UID) || request.GetPod().GetMembership() == nil ||
		request.GetPod().GetPriority() != preemptorPriority || request.GetAttempt().GetNumber() == 0 {
		t.Errorf("asked %v", request)
	}
}

func TestForAGroupItIsAskedAboutAllEligibleNodesAndTheRoomWithoutLowerPodsThatHaveGPUs(t *testing.T) {
	b := newGroupPreemptBench(t)
	b.handle.nodes = []fwk.NodeInfo{
		nodeOf("c", "8", "1Ti", "1Ti", "4", runningPod("c1", "c", 0, withGPU), runningPod("c2", "c", 0), runningPod("c3", "c", preemptorPriority, withGPU)),
		nodeNamed("b", cordoned),
		nodeOf("a", "8", "1Ti", "1Ti", "9"),
	}
	b.name()
	b.wantStillRefused(urgentMember("m1"))
	b.wantAskedAbout([]uint32{0, 2})
	// Of the four pods that node c may have two stay.
	if request := b.asked[0]; !slices.Equal(request.GetRoom(), []byte{9, 2}) || request.GetNodes().GetEpoch() != 7 || request.GetNodes().GetKnown() != 3 {
		t.Errorf("asked %v", request)
	}
	b.wantUntold()
}

func TestForAGroupABudgetIsCountedOnAllNodesTogether(t *testing.T) {
	b := newGroupPreemptBench(t, runningPod("a1", "a", 1, ofWeb, withGPU), runningPod("b1", "b", 0, ofWeb, withGPU), runningPod("b2", "b", 2, ofWeb, withGPU),
		runningPod("a2", "a", 0, ofWeb), runningPod("a3", "a", 0, ofWeb, withGPU, leaving), runningPod("a4", "a", 200, ofWeb, withGPU),
		runningPod("c1", "c", 0, ofWeb, withGPU))
	b.handle.nodes[2].SetNode(nodeNamed("c", cordoned).node)
	b.allowOneDisruption()
	b.name()
	b.wantStillRefused(urgentMember("m1"))
	// The one disruption is for the least important pod with GPUs, b1.
	if got := b.asked[0].GetProtectedUids(); !slices.Equal(got, []string{"uid-of-a1", "uid-of-b2"}) {
		t.Errorf("protected are %v", got)
	}
}

func TestMembersThatMayNotPreemptCostNoCall(t *testing.T) {
	for name, change := range map[string]func(*preemptBench, *v1.Pod){
		"policy Never": func(_ *preemptBench, pod *v1.Pod) { pod.Spec.PreemptionPolicy = ptr.To(v1.PreemptNever) },
		"no pods of lower priority have the room": func(b *preemptBench, _ *v1.Pod) {
			b.service.do(func() { b.service.plan = planRefusing(pb.Verdict_CODE_UNSCHEDULABLE, "no room for the group") })
		},
		"a call came to nothing a moment ago": func(b *preemptBench, _ *v1.Pod) { b.plugin.link.preemptionRests.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newGroupPreemptBench(t, runningPod("a1", "a", 0))
			b.name("uid-of-a1")
			pod := urgentMember("m1")
			change(b, pod)
			b.wantStillRefused(pod)
			b.wantEvicted()
			if count := b.service.count("Preempt"); count > 0 {
				t.Errorf("%d calls", count)
			}
		})
	}
}

func TestAGroupThatNoEvictionHelpsStaysRefused(t *testing.T) {
	b := newGroupPreemptBench(t, runningPod("a1", "a", 0))
	b.answerPreempt(func() (*pb.PreemptResponse, error) {
		return &pb.PreemptResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_UNSCHEDULABLE, Reason: "no"}}, nil
	})
	for range 2 {
		b.wantStillRefused(urgentMember("m1"))
	}
	b.wantEvicted()
	b.wantUntold()
	if count := b.service.count("Preempt"); count != 2 {
		t.Errorf("%d calls: that no eviction helps is an answer", count)
	}
}

func TestACallForAGroupThatComesToNothingEvictsNobodyAndIsNotRepeatedAtOnce(t *testing.T) {
	for name, answer := range map[string]func() (*pb.PreemptResponse, error){
		"no answer": func() (*pb.PreemptResponse, error) { return nil, status.Error(codes.Unavailable, "away") },
		"retry": func() (*pb.PreemptResponse, error) {
			return &pb.PreemptResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_RETRY}}, nil
		},
		"no verdict": func() (*pb.PreemptResponse, error) { return &pb.PreemptResponse{}, nil },
		"a victim of no lower priority": func() (*pb.PreemptResponse, error) {
			return &pb.PreemptResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_OK}, VictimUids: []string{"uid-of-a1", "uid-of-b1"}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newGroupPreemptBench(t, runningPod("a1", "a", 0), runningPod("b1", "b", preemptorPriority))
			b.answerPreempt(answer)
			b.wantStillRefused(urgentMember("m1"))
			b.wantStillRefused(urgentMember("m2"))
			b.wantEvicted()
			b.wantUntold()
			if count := b.service.count("Preempt"); count != 1 {
				t.Errorf("%d calls though the first came to nothing", count)
			}
		})
	}
}

func TestAnEvictionThatIsUnderWayIsNotBegunAgain(t *testing.T) {
	b := newGroupPreemptBench(t, runningPod("a1", "a", 0), runningPod("b1", "b", 0))
	b.name("uid-of-a1")
	b.api.evicted = make(chan string) // The API server does not answer before it is read.
	b.wantStillRefused(urgentMember("m1"))
	b.name("uid-of-a1", "uid-of-b1")
	b.wantStillRefused(urgentMember("m2"))
	b.wantStillRefused(urgentMember("m3"))
	b.wantEvicted("a1", "b1")
	for _, want := range []string{"m1", "m2"} {
		if told := receive(t, b.told.Events, "the Event of "+want); told != "Normal Preempting preempting 1 pod of lower priority for the group of the pod" {
			t.Errorf("told %q", told)
		}
	}
	b.wantUntold()
	// It may be repeated when it is over: the service names those that are still there.
	eventually(t, "the end of the evictions", func() bool {
		_, a1 := b.plugin.evicting.Load(types.UID("uid-of-a1"))
		_, b1 := b.plugin.evicting.Load(types.UID("uid-of-b1"))
		return !a1 && !b1
	})
	b.wantStillRefused(urgentMember("m1"))
	b.wantEvicted("a1", "b1")
}

func TestAMemberIsTriedAgainAfterARestIfAPodCouldNotBeEvicted(t *testing.T) {
	for name, test := range map[string]struct{ fails bool }{"one fails": {true}, "none fails": {false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				evicted := map[string]string{}
				evict := func(_ context.Context, c preemption.Candidate, by preemption.ExecutorPreemptor, victim *v1.Pod, _ string) (bool, error) {
					mu.Lock()
					defer mu.Unlock()
					evicted[victim.Name] = c.Name()
					if by.UID() != "uid-of-m1" || by.Priority() != preemptorPriority || by.Type() != "pod" {
						t.Errorf("evicted by %v", by)
					}
					if test.fails && victim.Name == "a1" {
						return false, errors.New("denied by a webhook")
					}
					return false, nil
				}
				woken := make(activations, 4)
				l := &link{ctx: t.Context(), waiting: newWaiting(klog.Background(), woken)}
				p := &Plugin{
					link: l, handle: &fakeHandle{}, teller: &teller{recorder: record.NewFakeRecorder(4)},
					preemption: &defaultpreemption.DefaultPreemption{Executor: &preemption.Executor{PreemptPod: evict}},
				}
				pod := urgentMember("m1")
				l.waiting.enter(pod)
				p.evictForGroup(t.Context(), pod, []*v1.Pod{runningPod("a1", "a", 0), runningPod("b1", "b", 0)})
				time.Sleep(preemptionRest - time.Nanosecond)
				synctest.Wait()
				if len(evicted) != 2 || evicted["a1"] != "a" || evicted["b1"] != "b" || len(woken) > 0 {
					t.Errorf("evicted %v, %d woken before the rest is over", evicted, len(woken))
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if test.fails != (len(woken) == 1) || test.fails && <-woken != pod.UID {
					t.Errorf("%d pods woken", len(woken))
				}
				l.running.Wait()
			})
		})
	}
}

func TestAPodIsNominatedWhereMembersOfAPlanThatEndsForItWait(t *testing.T) {
	for name, heardBefore := range map[string]bool{"told by this answer": false, "told by Changes before": true} {
		t.Run(name, func(t *testing.T) {
			b := newPreemptBench(t, inGroup(runningPod("w1", "a", 0)), runningPod("stays", "a", 0))
			b.needCPU(3)
			gangs := b.plugin.link.gangs
			if got := gangs.come("uid-of-w1", planOf("p1", 2), time.Minute); got != planWaits {
				t.Fatalf("the member's plan is in state %d", got)
			}
			b.answerPreempt(func() (*pb.PreemptResponse, error) {
				if heardBefore {
					gangs.end("p1")
					gangs.leave("uid-of-w1", planOf("p1", 2))
				}
				return &pb.PreemptResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_OK}, Gpus: []string{"GPU-1", "GPU-2"}, EndedPlans: []string{"p1"}}, nil
			})
			result, got := b.postFilter(urgentPod())
			wantStatus(t, got, fwk.Success, "")
			b.wantNominated(result, "a")
			b.wantEvicted()
			if got := gangs.come("uid-of-w2", planOf("p1", 2), time.Minute); got != planEnded {
				t.Errorf("the plan is in state %d for a member that comes later", got)
			}
		})
	}
}
