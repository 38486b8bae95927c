package gputopology

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	probeInterval  = time.Second
	resyncInterval = 30 * time.Second
)

// link is what the plugin instances of one process share about one service. The
// service takes the newest session for the only one, so there is one per endpoint.
type link struct {
	client  *client
	tables  *tables
	waiting *waiting
	gangs   *gangs
	books   *books
	lister  corev1listers.PodLister
	// bindings holds one entry for each Binding that is under way.
	bindings chan struct{}

	// missed: the stream of changes was broken, so that some may not have come.
	missed atomic.Bool
	// following: the stream of changes is open, so that the service says which refused pods a change helps.
	following atomic.Bool
	// preemptionRests: a Preempt call came to nothing a moment ago, so that none is made.
	preemptionRests atomic.Bool

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	users   int
}

var links = struct {
	sync.Mutex
	byEndpoint map[string]*link
}{byEndpoint: map[string]*link{}}

// acquireLink returns the endpoint's link, and starts it for the first instance.
func acquireLink(ctx context.Context, endpoint string, h fwk.Handle) (*link, error) {
	links.Lock()
	defer links.Unlock()
	l := links.byEndpoint[endpoint]
	if l == nil {
		var err error
		if l, err = newLink(ctx, endpoint, h); err != nil {
			return nil, err
		}
		links.byEndpoint[endpoint] = l
		l.start()
	}
	l.users++
	return l, nil
}

// release stops the link when its last instance is closed.
func (l *link) release() {
	links.Lock()
	l.users--
	last := l.users == 0
	if last {
		delete(links.byEndpoint, l.client.endpoint)
	}
	links.Unlock()
	if last {
		l.close()
	}
}

func newLink(ctx context.Context, endpoint string, h fwk.Handle) (*link, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("plugin %s needs the host name as the leader's identity: %w", Name, err)
	}
	client, err := dial(endpoint)
	if err != nil {
		return nil, err
	}
	logger := klog.LoggerWithName(klog.FromContext(ctx), Name)
	lister := h.SharedInformerFactory().Core().V1().Pods().Lister()
	waiting, gangs := newWaiting(logger, h), newGangs(logger, h)
	books := newBooks(client, lister, time.Now().UnixNano(), host)
	books.gangs, books.wake = gangs, waiting.wake
	l := &link{
		client:   client,
		tables:   newTables(client, endpoint, books.outrank),
		waiting:  waiting,
		gangs:    gangs,
		books:    books,
		lister:   lister,
		bindings: make(chan struct{}, bindingsMax),
	}
	l.ctx, l.stop = context.WithCancel(klog.NewContext(ctx, logger))
	return l, nil
}

// start begins the background work. None of it wakes a pod before the first
// cycle, so it may run before the framework has wired the queue to the handle.
func (l *link) start() {
	socket := strings.TrimPrefix(l.client.endpoint, endpointScheme)
	if _, err := os.Stat(socket); err != nil {
		klog.FromContext(l.ctx).Error(err, "The socket of the GPU topology service is not there (yet)", logEndpoint, l.client.endpoint, logRemedy, remedyUnavailable)
	}
	l.run(l.follow)
	l.run(l.probe)
	l.run(l.wakeRecovered)
	l.run(l.books.run)
	l.run(l.resyncRegularly)
	l.run(l.settlePlans)
}

// run does work in the background until the link is closed.
func (l *link) run(work func(context.Context)) {
	if l.ctx.Err() == nil {
		l.running.Go(func() { work(l.ctx) })
	}
}

func (l *link) close() {
	l.stop()
	l.running.Wait()
	_ = l.client.conn.Close() // Its one error says that it is closed already.
}

// probe closes the breaker when the service is healthy again, so that no scheduling cycle pays for finding out.
func (l *link) probe(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.client.breaker.opened:
		}
		logger.Info("The GPU topology service is not asked until it is healthy again", logEndpoint, l.client.endpoint, logRemedy, remedyUnavailable)
		for l.client.breaker.isOpen() && sleep(ctx, probeInterval) {
			if l.client.healthy(ctx) {
				l.client.breaker.close()
			}
		}
		logger.Info("The GPU topology service is asked again", logEndpoint, l.client.endpoint)
		l.books.sendSoon()
		l.waiting.wakeOne()
	}
}

// wakeRecovered wakes the pods that waited for the service, once it has answered
// for one. Until then it has another one try every second: the first may be gone.
func (l *link) wakeRecovered(ctx context.Context) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if l.client.breaker.isTrying() {
				l.waiting.wakeOne()
			}
		case <-l.client.breaker.recovered:
			l.wakeWaiting()
		}
	}
}

func (l *link) wakeWaiting() {
	if l.missed.Swap(false) {
		l.waiting.wakeAll()
	} else {
		l.waiting.wakeFailed()
	}
}

func (l *link) settlePlans(ctx context.Context) {
	for sleep(ctx, settleInterval) {
		l.gangs.settle()
	}
}

func (l *link) resyncRegularly(ctx context.Context) {
	for sleep(ctx, resyncInterval) {
		l.waiting.prune(l.lister)
		l.gangs.prune(l.books.plans())
		if _, err := l.books.resync(ctx); err != nil {
			klog.FromContext(ctx).V(2).Info("Resync failed and is repeated", logEndpoint, l.client.endpoint, "err", err)
		}
	}
}
