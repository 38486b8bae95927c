package gputopology

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	readyInterval = 250 * time.Millisecond
	// readyWithin is how long an API server that answers may say that it is not ready, or not say whether it is.
	readyWithin = 10 * time.Second
)

// errAway ends a watch that cannot be resumed. As an expired one, of which client-go makes no error in the log.
var errAway = apierrors.NewResourceExpired("the API server was away and has forgotten what changed before; all objects are read anew")

// patientTransport holds back what informers ask while the API server is away.
//
// An informer that is refused tries again after 0.8 s, after each further failure in 2 minutes twice as long, up to 30 s
// and as much again by chance, and this cannot be set (client-go, tools/cache/reflector.go): so long the scheduler would see
// no pod after the API server has come back. It would be refused also by one that has just begun, which forbids
// everything until it has read the roles; so the requests wait until the API server says that it is ready.
type patientTransport struct {
	next http.RoundTripper
	// ready asks the API server whether it is ready.
	ready func(context.Context) error
	// ctx ends with the scheduler.
	ctx context.Context

	mu sync.Mutex
	// back: see away.
	back chan struct{}
}

// bePatient lets the scheduler's informers, those of the other profiles too, go on as soon as an API server that was away
// is ready. It must be called before they are started.
func bePatient(ctx context.Context, h fwk.Handle) {
	logger := klog.LoggerWithName(klog.FromContext(ctx), Name)
	client, ok := h.ClientSet().CoreV1().RESTClient().(*rest.RESTClient)
	if !ok || client == nil || client.Client == nil {
		logger.Info("The informers' HTTP client is out of reach: after the API server was away they may wait for a minute")
		return
	}
	core := h.SharedInformerFactory().Core().V1()
	for _, informer := range []cache.SharedIndexInformer{core.Pods().Informer(), core.Nodes().Informer()} {
		if err := informer.SetWatchErrorHandlerWithContext(readAnew); err != nil {
			logger.Error(err, "After the API server was away an informer may wait for a minute")
		}
	}
	if _, isPatient := client.Client.Transport.(*patientTransport); isPatient {
		return // The plugin of another profile was here.
	}
	client.Client.Transport = &patientTransport{
		next: client.Client.Transport,
		ready: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			return client.Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
		},
		ctx: klog.NewContext(ctx, logger),
	}
}

// RoundTrip sends the request; an informer's not before the API server is there.
func (t *patientTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if !isOfInformer(request) {
		return t.next.RoundTrip(request)
	}
	for {
		if err := t.await(request); err != nil {
			return nil, err
		}
		response, err := t.next.RoundTrip(request)
		if !isUnsent(err) {
			return response, err
		}
		t.noteAway(err)
	}
}

// await returns when the API server is not away, or with the reason why the request is not to be sent.
func (t *patientTransport) await(request *http.Request) error {
	back := t.away()
	if back == nil {
		return nil
	}
	if resumes(request) {
		return errAway // Now: the informer's wait that follows passes while the API server is away.
	}
	select {
	case <-back:
		return nil
	case <-request.Context().Done():
		return request.Context().Err()
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
}

// away returns what is closed when the API server is ready again; nil if it is not known to be away.
func (t *patientTransport) away() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.back
}

func (t *patientTransport) noteAway(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.back == nil {
		t.back = make(chan struct{})
		klog.FromContext(t.ctx).Info("The API server is away; informers wait until it is ready", "err", cause)
		go t.awaitReady()
	}
}

// awaitReady lets the requests go on when the API server is ready.
func (t *patientTransport) awaitReady() {
	var answersSince time.Time
	for sleep(t.ctx, readyInterval) {
		err := t.ready(t.ctx)
		switch {
		case isUnsent(err):
			answersSince = time.Time{}
			continue
		case answersSince.IsZero():
			answersSince = time.Now()
		}
		if err == nil || time.Since(answersSince) >= readyWithin {
			klog.FromContext(t.ctx).Info("The API server is back; informers go on", "ready", err == nil)
			t.mu.Lock()
			close(t.back)
			t.back = nil
			t.mu.Unlock()
			return
		}
	}
}

// isOfInformer reports whether the request reads or watches all objects of a kind: only informers do that.
func isOfInformer(request *http.Request) bool {
	query := request.URL.Query()
	return request.Method == http.MethodGet && (query.Has("watch") || query.Has("resourceVersion") || query.Has("limit"))
}

// resumes reports whether the request goes on with a watch instead of reading all objects first.
func resumes(request *http.Request) bool {
	query := request.URL.Query()
	return query.Has("watch") && !query.Has("sendInitialEvents")
}

// isUnsent reports whether there was no connection on which the request could have been sent.
func isUnsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// readAnew is what an informer does when its watch ended with an error. After errAway it reads all objects anew at once:
// there is nothing to back off from, for the request is held back until the API server is ready.
//
// For that it goes on with the informer's work instead of returning to it, where the next wait would double. A handler is
// meant to return soon; look again when client-go is upgraded: at 1.37 the informer's own loop calls it, with nothing locked.
func readAnew(ctx context.Context, reflector *cache.Reflector, err error) {
	for errors.Is(err, errAway) {
		err = reflector.ListAndWatchWithContext(ctx)
	}
	if err != nil {
		cache.DefaultWatchErrorHandler(ctx, reflector, err)
	}
}
