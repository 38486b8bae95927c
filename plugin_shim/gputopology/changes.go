package gputopology

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

const (
	// reconnectDelay is short because gRPC itself spaces its attempts to connect by up to 1 s.
	reconnectDelay = 200 * time.Millisecond
	// tableTimeout is for fetches outside the scheduling cycle: nobody waits for them.
	tableTimeout = 5 * time.Second
)

// follow keeps the stream of changes open for as long as the context lasts. The
// stream is also the sign that the service is there.
func (l *link) follow(ctx context.Context) {
	logger := klog.FromContext(ctx)
	logged := ""
	for {
		connected, err := l.followOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if connected || err.Error() != logged {
			logger.Error(err, "The GPU topology service does not answer; pods with GPUs wait", logEndpoint, l.client.endpoint, logRemedy, remedyUnavailable)
			logged = err.Error()
		}
		if !sleep(ctx, reconnectDelay) {
			return
		}
	}
}

// followOnce returns when the stream breaks, and whether it had been connected.
func (l *link) followOnce(ctx context.Context) (connected bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer l.following.Store(false)
	stream, err := l.client.Changes(ctx, &pb.ChangesRequest{Attempt: l.books.newest()})
	if err != nil {
		return false, err
	}
	for {
		change, err := stream.Recv()
		if status.Code(err) == codes.Unimplemented {
			return connected, l.client.explain("Changes", err)
		}
		if err != nil {
			return connected, err
		}
		if !connected {
			if err := l.greet(ctx); err != nil {
				return false, err
			}
			connected = true
			l.following.Store(true)
		}
		l.apply(ctx, change)
	}
}

// greet brings a new connection up: the table, then what is held, then a first pod of those that waited for it.
// The table comes first for it tells which session the service knows of, and one that is not newer may not hold anything.
func (l *link) greet(ctx context.Context) error {
	l.client.breaker.close()
	l.gangs.clearSeats()
	if err := l.fetchTable(ctx); err != nil {
		return fmt.Errorf("first Nodes of a connection: %w", err)
	}
	answer, err := l.books.resync(ctx)
	if err != nil {
		return fmt.Errorf("first Resync of a connection: %w", err)
	}
	logger := klog.FromContext(ctx)
	logger.Info("Connected to the GPU topology service", logEndpoint, l.client.endpoint, "version", answer.GetServiceVersion(),
		logEpoch, answer.GetEpoch(), logTableSize, answer.GetTableSize())
	if skew := versionSkew(answer.GetServiceVersion()); skew != "" {
		logger.Info(skew, logEndpoint, l.client.endpoint)
	}
	l.books.sendSoon()
	if l.waiting.any() {
		l.missed.Store(true)
		l.client.breaker.try()
		l.waiting.wakeOne()
	}
	return nil
}

// apply ends plans, fetches new names outside the scheduling cycle, and wakes the pods that the change may help.
func (l *link) apply(ctx context.Context, change *pb.ChangesResponse) {
	logger := klog.FromContext(ctx)
	logger.V(4).Info("The service reports a change", logEpoch, change.GetEpoch(), logGeneration, change.GetGeneration(),
		logTableSize, change.GetTableSize(), "kinds", change.GetKinds(), "podUIDs", change.GetPodUids(),
		"endedPlans", change.GetEndedPlans())
	l.gangs.end(change.GetEndedPlans()...)
	if err := l.follows(ctx, change.GetEpoch(), change.GetTableSize()); err != nil {
		logger.V(2).Info("The node table could not be fetched; the next cycle or change fetches it", logEndpoint, l.client.endpoint, "err", err)
	}
	uids := make([]types.UID, len(change.GetPodUids()))
	for i, uid := range change.GetPodUids() {
		uids[i] = types.UID(uid)
	}
	l.waiting.wake(uids...)
}

// follows fetches the node table if it is not the one named.
func (l *link) follows(ctx context.Context, epoch uint64, size uint32) error {
	t := l.tables.current()
	if t.epoch == epoch && len(t.names) >= int(size) {
		return nil
	}
	return l.fetchTable(ctx)
}

func (l *link) fetchTable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tableTimeout)
	defer cancel()
	_, err := l.tables.fetch(ctx)
	return err
}
