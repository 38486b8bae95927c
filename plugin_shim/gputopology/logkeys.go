package gputopology

// Keys of structured log lines: the same as in the service's log, so that lines of both join.
const (
	logPod        = "pod"
	logPodUID     = "podUID"
	logNode       = "node"
	logAttempt    = "attempt"
	logEndpoint   = "endpoint"
	logEpoch      = "epoch"
	logTableSize  = "tableSize"
	logGeneration = "generation"
	logCandidates = "candidates"
	logVerdict    = "verdict"
	logOutcome    = "outcome"
	logRemedy     = "remedy"
	logVictims    = "victims"
	logPlan       = "plan"
)
