package gputopology

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

const (
	// messageBytesMax holds the names of more than 100,000 nodes in one Nodes answer.
	messageBytesMax = 64 << 20
	probeTimeout    = 500 * time.Millisecond
)

// client is the connection to the service. Its unary calls are counted, pass
// the breaker, and fail with an *unavailableError or a *failedError.
type client struct {
	pb.SchedulerPluginClient
	endpoint string
	conn     *grpc.ClientConn
	health   healthpb.HealthClient
	breaker  *breaker
}

func dial(endpoint string) (*client, error) {
	c := &client{endpoint: endpoint}
	c.breaker = newBreaker(c.showBreaker)
	conn, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytesMax), grpc.MaxCallSendMsgSize(messageBytesMax)),
		grpc.WithUnaryInterceptor(c.guard),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("endpoint %s of plugin %s: %w", endpoint, Name, err)
	}
	c.conn, c.SchedulerPluginClient, c.health = conn, pb.NewSchedulerPluginClient(conn), healthpb.NewHealthClient(conn)
	c.showBreaker(false)
	return c, nil
}

func (c *client) showBreaker(open bool) {
	value := 0.0
	if open {
		value = 1
	}
	breakerOpen.WithLabelValues(c.endpoint).Set(value)
}

// guard is the unary interceptor.
func (c *client) guard(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if strings.HasPrefix(method, "/grpc.health.") {
		return invoke(ctx, method, req, reply, conn, opts...)
	}
	if c.breaker.isOpen() {
		return &unavailableError{endpoint: c.endpoint}
	}
	start := time.Now()
	err := invoke(ctx, method, req, reply, conn, opts...)
	rpcSeconds.WithLabelValues(path.Base(method)).Observe(time.Since(start).Seconds())
	rpcTotal.WithLabelValues(path.Base(method), status.Code(err).String()).Inc()
	inCycle := method == pb.SchedulerPlugin_Filter_FullMethodName || method == pb.SchedulerPlugin_Plan_FullMethodName
	c.breaker.record(!unanswered(err), inCycle)
	return c.explain(path.Base(method), err)
}

// unanswered reports whether the error means that nobody answered, or too late.
// Other errors are answers: quick, and about one call.
func unanswered(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
		return true
	default:
		return false
	}
}

func (c *client) explain(method string, err error) error {
	switch {
	case err == nil:
		return nil
	case unanswered(err):
		return &unavailableError{endpoint: c.endpoint, cause: err}
	default:
		return &failedError{endpoint: c.endpoint, method: method, cause: err}
	}
}

// healthy asks the service's health endpoint.
func (c *client) healthy(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answer, err := c.health.Check(ctx, &healthpb.HealthCheckRequest{Service: pb.SchedulerPlugin_ServiceDesc.ServiceName})
	return err == nil && answer.GetStatus() == healthpb.HealthCheckResponse_SERVING
}

const remedyUnavailable = "check that `pyscheduler serve` runs beside this scheduler and listens on that socket"

// unavailableError says that the service did not answer. Its text is the same
// for each cause: a changed message is a write to the API within the cycle.
type unavailableError struct {
	endpoint string
	// cause is nil if the breaker answered.
	cause error
}

func (e *unavailableError) Error() string {
	return fmt.Sprintf("the GPU topology service on %s does not answer: %s", e.endpoint, remedyUnavailable)
}

func (e *unavailableError) Unwrap() error { return e.cause }

// failedError says that the service answered a call with an error.
type failedError struct {
	endpoint, method string
	cause            error
}

func (e *failedError) Error() string {
	if status.Code(e.cause) == codes.Unimplemented {
		return fmt.Sprintf("the GPU topology service on %s does not know the call %s, so it is older than this plugin: upgrade the service to version %s",
			e.endpoint, e.method, Version)
	}
	return fmt.Sprintf("the GPU topology service on %s failed to answer %s (%s): see its log", e.endpoint, e.method, status.Code(e.cause))
}

func (e *failedError) Unwrap() error { return e.cause }

// nonsenseError says that an answer breaks the contract in proto/pyscheduler/v1.
type nonsenseError struct {
	endpoint, method, what string
}

func (e *nonsenseError) Error() string {
	return fmt.Sprintf("the GPU topology service on %s answered %s with %s: run the same version of service and plugin", e.endpoint, e.method, e.what)
}
