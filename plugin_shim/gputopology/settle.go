package gputopology

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

// bindingLandsWithin is how long a Binding without an answer may still be
// carried out: the API server ends a request after 60 s (its --request-timeout),
// and the margin is for a write that etcd took on just before. Posting the
// Binding again instead would be quicker, but by now the scheduler has let go of
// the pod's CPU and memory on that node.
const bindingLandsWithin = 75 * time.Second

// settleBackoff spaces the reads of a pod whose outcome is unknown: 0.5 s to 5 s.
var settleBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.1, Steps: 1000, Cap: 5 * time.Second}

// doubt is a Binding whose outcome is unknown.
type doubt struct {
	binder *binder
	pod    klog.ObjectRef
}

// settle reads the pod live, in the background, until the outcome is known, and
// tells the service if the pod is not bound. That it is bound the service sees itself.
func (l *link) settle(uid types.UID, attempt *pb.Attempt, d doubt) {
	l.run(func(ctx context.Context) {
		logger := klog.FromContext(ctx)
		logger.Info("The outcome of a Binding is unknown; reading the pod until it is known", logPod, d.pod, logPodUID, uid, logAttempt, attempt.GetNumber())
		switch d.binder.await(ctx, bindingLandsWithin, settleBackoff) {
		case bound:
			l.books.noDoubt(uid, attempt)
			logger.Info("The Binding had succeeded", logPod, d.pod, logPodUID, uid)
		case notBound:
			l.books.giveBack(uid, attempt)
			l.waiting.wake(uid)
			logger.Info("The Binding had failed; its GPUs are given back", logPod, d.pod, logPodUID, uid)
		}
	})
}

// await returns unknown only if the context ends.
func (b *binder) await(ctx context.Context, landsWithin time.Duration, backoff wait.Backoff) outcome {
	for sleep(ctx, backoff.Step()) {
		mayLand := time.Since(b.lastSent) < landsWithin
		switch seen := b.look(ctx); {
		case seen == podOurs:
			return bound
		case seen == podElsewhere, seen == podFree && !mayLand:
			return notBound
		}
	}
	return unknown
}
