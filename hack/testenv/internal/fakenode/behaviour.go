package fakenode

import (
	"fmt"
	"strconv"
	"time"
)

// Annotations that steer the fakes. On a pod (through the pod template) they apply to that pod; on a
// namespace they are the defaults of its pods.
const (
	prefix = "testenv.weir.dev/"
	// AnnotationReadyAfter is a duration from binding to ready, or `never`.
	AnnotationReadyAfter = prefix + "ready-after"
	// AnnotationFail is the reason a container waits for ever, e.g. `CrashLoopBackOff` or `ImagePullBackOff`.
	AnnotationFail = prefix + "fail"
	// AnnotationFailAfter is how long a failing pod is ready first.
	AnnotationFailAfter = prefix + "fail-after"
	// AnnotationRunFor is how long a pod that ends (restartPolicy Never or OnFailure) runs.
	AnnotationRunFor = prefix + "run-for"
	// AnnotationExitCode is the exit code of a pod that ends.
	AnnotationExitCode = prefix + "exit-code"
	// AnnotationTerminateAfter is how long a deleted pod stays.
	AnnotationTerminateAfter = prefix + "terminate-after"
	// AnnotationPending, when `true`, leaves a pod unscheduled, a claim unbound or a load balancer without address.
	AnnotationPending = prefix + "pending"
)

const (
	defaultRunFor = 300 * time.Millisecond
	// restartEvery is the pace at which a crashing container counts restarts.
	restartEvery = 2 * time.Second
)

// behaviour is what the annotations ask for.
type behaviour struct {
	readyAfter     time.Duration
	never          bool
	failReason     string
	failAfter      time.Duration
	runFor         time.Duration
	exitCode       int32
	terminateAfter time.Duration
	pending        bool
}

// parseBehaviour reads the annotations of a pod, then those of its namespace, then the defaults.
func parseBehaviour(pod, namespace map[string]string, readyAfter time.Duration) (behaviour, error) {
	out := behaviour{readyAfter: readyAfter, runFor: defaultRunFor}
	value := func(name string) string {
		if own, found := pod[name]; found {
			return own
		}
		return namespace[name]
	}
	duration := func(name string, into *time.Duration) error {
		text := value(name)
		if text == "" {
			return nil
		}
		parsed, err := time.ParseDuration(text)
		if err != nil || parsed < 0 {
			return fmt.Errorf("annotation %s: %q is not a duration such as 5s", name, text)
		}
		*into = parsed
		return nil
	}
	if value(AnnotationReadyAfter) == "never" {
		out.never = true
	} else if err := duration(AnnotationReadyAfter, &out.readyAfter); err != nil {
		return out, err
	}
	if err := duration(AnnotationFailAfter, &out.failAfter); err != nil {
		return out, err
	}
	if err := duration(AnnotationRunFor, &out.runFor); err != nil {
		return out, err
	}
	if err := duration(AnnotationTerminateAfter, &out.terminateAfter); err != nil {
		return out, err
	}
	if text := value(AnnotationExitCode); text != "" {
		code, err := strconv.ParseInt(text, 10, 32)
		if err != nil || code < 0 || code > 255 {
			return out, fmt.Errorf("annotation %s: %q is not an exit code", AnnotationExitCode, text)
		}
		out.exitCode = int32(code)
	}
	out.failReason = value(AnnotationFail)
	out.pending = value(AnnotationPending) == "true"
	return out, nil
}
