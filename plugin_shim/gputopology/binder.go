package gputopology

import (
	"context"
	"errors"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// bindTimeout is how long one Binding may take: an answer that was lost on its way must not hold the pod for ever.
	bindTimeout = 10 * time.Second
	readTimeout = 2 * time.Second
)

// bindBackoff spaces the tries of a Binding that got no clear answer: 0, 50, 250 ms.
var bindBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 5, Steps: 3}

type outcome int

const (
	// unknown: the pod is not bound, but a Binding that got no answer may still be under way.
	unknown outcome = iota
	bound
	notBound
)

// podBinder is what binding needs of the API. Get must be a live read.
type podBinder interface {
	Bind(ctx context.Context, binding *v1.Binding, opts metav1.CreateOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.Pod, error)
}

// binder posts one Binding and finds out what became of it. Posting it again is
// safe: it names the pod by UID, and a pod that has a node is never bound anew.
type binder struct {
	pods    podBinder
	binding *v1.Binding
	// pending is true once a Binding was sent that may still be under way, the last one at lastSent.
	pending  bool
	lastSent time.Time
}

func newBinder(pods podBinder, binding *v1.Binding) *binder {
	return &binder{pods: pods, binding: binding}
}

// bind returns an error with every outcome but bound.
func (b *binder) bind(ctx context.Context) (_ outcome, err error) {
	backoff := bindBackoff
	for {
		if err = b.post(ctx); err == nil {
			return bound, nil
		}
		switch b.judge(ctx, err) {
		case bound:
			return bound, nil
		case notBound:
			return notBound, err
		}
		if backoff.Steps <= 1 || !sleep(ctx, backoff.Step()) {
			break
		}
	}
	// A conflict may be with our own Binding, if a proxy on the way sent it twice.
	if b.pending || apierrors.IsConflict(err) {
		return unknown, err
	}
	return notBound, err
}

// post notes whether the Binding may reach the API server after all.
func (b *binder) post(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	b.lastSent = time.Now()
	err := b.pods.Bind(ctx, b.binding, metav1.CreateOptions{})
	if err != nil && !isRefusal(err) && !utilnet.IsConnectionRefused(err) {
		b.pending = true
	}
	return err
}

// judge finds out what a failed post did. Unknown asks for another try.
func (b *binder) judge(ctx context.Context, err error) outcome {
	switch seen := b.look(ctx); {
	case seen == podOurs:
		return bound
	case seen == podElsewhere:
		return notBound
	case seen == podFree && isRefusal(err) && !b.pending:
		return notBound
	default:
		return unknown
	}
}

// isRefusal reports whether the API server said that it did not do it.
func isRefusal(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	code := answer.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

type sighting int

const (
	podUnreadable sighting = iota
	// podFree has no node yet.
	podFree
	// podOurs is bound as our Binding says.
	podOurs
	// podElsewhere can never be bound by our Binding: it is gone, recreated, or bound by another one.
	podElsewhere
)

// look reads the pod live, also while the caller's context ends.
func (b *binder) look(ctx context.Context) sighting {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	pod, err := b.pods.Get(ctx, b.binding.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return podElsewhere
	case err != nil:
		return podUnreadable
	case pod.UID != b.binding.UID:
		return podElsewhere
	case pod.Spec.NodeName == "":
		return podFree
	case pod.Spec.NodeName == b.binding.Target.Name && carries(pod.Annotations, b.binding.Annotations):
		return podOurs
	default:
		return podElsewhere
	}
}

func carries(annotations, wanted map[string]string) bool {
	for key, value := range wanted {
		if annotations[key] != value {
			return false
		}
	}
	return true
}

// sleep returns false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
