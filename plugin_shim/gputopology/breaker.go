package gputopology

import "sync"

// breakerThreshold is how many calls in a row must go unanswered before the service is no longer asked.
const breakerThreshold = 3

// breaker keeps a service that does not answer from holding up the scheduling
// cycle, which all profiles share, for a deadline per pod.
//
// A service that seems to be back is on trial until it has answered a Filter
// or Plan call: only then are the pods that wait for it woken. Otherwise a service that
// is healthy but fails for every pod would have all of them tried every second.
type breaker struct {
	mu       sync.Mutex
	open     bool
	onTrial  bool
	failures int
	// opened and recovered get a value when the breaker opens and when a trial is passed.
	opened, recovered chan struct{}
	// watch is told when the breaker opens and closes.
	watch func(open bool)
}

func newBreaker(watch func(open bool)) *breaker {
	return &breaker{opened: make(chan struct{}, 1), recovered: make(chan struct{}, 1), watch: watch}
}

func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// record takes the outcome of a call. Only one within a scheduling cycle passes a trial.
func (b *breaker) record(answered, inCycle bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !answered:
		b.failures++
		if !b.open && b.failures >= breakerThreshold {
			b.open = true
			b.watch(true)
			signal(b.opened)
		}
	case !b.onTrial:
		b.failures = 0
	case inCycle:
		b.failures, b.onTrial = 0, false
		signal(b.recovered)
	}
}

// isTrying reports whether the service is asked, and has not passed its trial.
func (b *breaker) isTrying() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.onTrial && !b.open
}

// try puts the service on trial.
func (b *breaker) try() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onTrial = true
}

// close lets calls through again, on trial. The first that goes unanswered opens
// the breaker anew, so that a service which only answers health checks costs one
// deadline per probe.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		b.open, b.onTrial = false, true
		b.failures = breakerThreshold - 1
		b.watch(false)
	}
}

func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}
