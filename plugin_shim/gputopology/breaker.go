package gputopology

import "sync"

// breakerThreshold is how many calls in a row must go unanswered before the service is no longer asked.
const breakerThreshold = 3

// breaker keeps a service that does not answer from holding up the scheduling
// cycle, which all profiles share, for a deadline per pod.
type breaker struct {
	mu       sync.Mutex
	open     bool
	failures int
	// opened gets a value when the breaker opens.
	opened chan struct{}
	// watch is told each change.
	watch func(open bool)
}

func newBreaker(watch func(open bool)) *breaker {
	return &breaker{opened: make(chan struct{}, 1), watch: watch}
}

func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

func (b *breaker) record(answered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if answered {
		b.failures = 0
		return
	}
	b.failures++
	if b.open || b.failures < breakerThreshold {
		return
	}
	b.open = true
	b.watch(true)
	select {
	case b.opened <- struct{}{}:
	default:
	}
}

// close lets calls through again. The first one decides: if it too goes
// unanswered the breaker opens at once, so that a service which only answers
// health checks costs one deadline per probe and not three.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return
	}
	b.open = false
	b.failures = breakerThreshold - 1
	b.watch(false)
}
