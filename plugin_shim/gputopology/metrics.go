package gputopology

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const (
	metricsNamespace = "pyscheduler"
	metricsSubsystem = "shim"
)

var (
	rpcTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "rpc_total",
		Help:           "Calls of the service, by method and gRPC status code.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"method", "code"})

	rpcSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "rpc_duration_seconds",
		Help: "Duration of calls of the service, by method.",
		// 0.25 ms to 1 s: a call takes about 0.6 ms, the deadlines are 250 ms.
		Buckets:        metrics.ExponentialBuckets(0.00025, 2, 13),
		StabilityLevel: metrics.ALPHA,
	}, []string{"method"})

	breakerOpen = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "breaker_open",
		Help:           "1 while the service is not asked because it does not answer.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"endpoint"})

	wideCycles = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "wide_cycles_total",
		Help:           "Scheduling cycles that looked at all nodes, because no candidate passed the other plugins before.",
		StabilityLevel: metrics.ALPHA,
	})

	advisoryCycles = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "advisory_cycles_total",
		Help:           "Scheduling cycles that only counted GPUs, because the service was away.",
		StabilityLevel: metrics.ALPHA,
	})

	unreserveRetries = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "unreserve_retries_total",
		Help:           "Unreserve calls that were not acknowledged and are repeated.",
		StabilityLevel: metrics.ALPHA,
	})

	doubtfulBindings = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "doubtful_bindings_total",
		Help:           "Bindings whose outcome could not be read at once.",
		StabilityLevel: metrics.ALPHA,
	})

	plansLetGo = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "plans_let_go_total",
		Help:           "Plans of groups whose members were let go together.",
		StabilityLevel: metrics.ALPHA,
	})

	plansEnded = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "plans_ended_total",
		Help:           "Plans of groups that ended before any member was let go.",
		StabilityLevel: metrics.ALPHA,
	})

	planWaitSeconds = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "plan_wait_seconds",
		Help: "Time from the first member of a group in Permit until all are let go.",
		// 1 ms to 17 min: members come within milliseconds of each other, or as late as permitTimeout allows.
		Buckets:        metrics.ExponentialBuckets(0.001, 2, 21),
		StabilityLevel: metrics.ALPHA,
	})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(rpcTotal, rpcSeconds, breakerOpen, wideCycles, advisoryCycles, unreserveRetries, doubtfulBindings,
		plansLetGo, plansEnded, planWaitSeconds)
})
