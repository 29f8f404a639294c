package fakenode

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// phase is where a bound pod is in its life.
type phase int

const (
	creating phase = iota
	blocked        // a container waits for ever, with a reason
	running
	succeeded
	failed
)

// stage is what a pod's status should say now, and when to look again (0: only on a change).
type stage struct {
	phase    phase
	reason   string
	message  string
	exitCode int32
	restarts int32
	again    time.Duration
}

// nextStage decides the stage of a pod bound since age.
func nextStage(pod *corev1.Pod, want behaviour, age time.Duration) stage {
	ends := pod.Spec.RestartPolicy == corev1.RestartPolicyNever || pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
	if want.failReason != "" && age >= want.failAfter {
		return failing(want.failReason, age-want.failAfter)
	}
	if want.never {
		return stage{phase: creating, reason: "ContainerCreating"}
	}
	if age < want.readyAfter {
		return stage{phase: creating, reason: "ContainerCreating", again: want.readyAfter - age}
	}
	if !ends {
		now := stage{phase: running}
		if want.failReason != "" {
			now.again = want.failAfter - age
		}
		return now
	}
	ran := age - want.readyAfter
	if ran < want.runFor {
		return stage{phase: running, again: want.runFor - ran}
	}
	if want.exitCode == 0 {
		return stage{phase: succeeded, reason: "Completed"}
	}
	if pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
		return failing("CrashLoopBackOff", ran-want.runFor)
	}
	return stage{phase: failed, reason: "Error", exitCode: want.exitCode}
}

func failing(reason string, since time.Duration) stage {
	out := stage{phase: blocked, reason: reason, message: "asked for by the annotation " + AnnotationFail}
	if reason == "CrashLoopBackOff" {
		out.restarts = int32(since/restartEvery) + 1
		if out.restarts < 100 {
			out.again = restartEvery - since%restartEvery
		}
	}
	return out
}

// podStatus is the status of a pod at a stage; what the old status says about times and addresses is kept.
func podStatus(pod *corev1.Pod, at stage, podIP, hostIP string, now metav1.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.ObservedGeneration = pod.Generation
	status.HostIP = hostIP
	status.HostIPs = []corev1.HostIP{{IP: hostIP}}
	if status.StartTime == nil {
		status.StartTime = &now
	}
	if at.phase != creating && at.phase != blocked && status.PodIP == "" {
		status.PodIP = podIP
		if pod.Spec.HostNetwork {
			status.PodIP = hostIP
		}
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	}
	ready, initialized := at.phase == running, at.phase != creating
	notReady := ""
	switch at.phase {
	case creating, blocked:
		status.Phase, notReady = corev1.PodPending, "ContainersNotReady"
		if at.restarts > 0 || status.PodIP != "" { // it ran before
			status.Phase = corev1.PodRunning
		}
	case running:
		status.Phase = corev1.PodRunning
	case succeeded:
		status.Phase, notReady = corev1.PodSucceeded, "PodCompleted"
	case failed:
		status.Phase, notReady = corev1.PodFailed, "PodFailed"
	}
	gatesOpen := true
	for _, gate := range pod.Spec.ReadinessGates {
		gatesOpen = gatesOpen && conditionTrue(status.Conditions, gate.ConditionType)
	}
	set := func(kind corev1.PodConditionType, value bool, reason string) {
		setCondition(&status.Conditions, kind, value, reason, pod.Generation, now)
	}
	set(corev1.PodReadyToStartContainers, initialized, "")
	set(corev1.PodInitialized, initialized, "")
	set(corev1.ContainersReady, ready, notReady)
	if ready && !gatesOpen {
		notReady = "ReadinessGatesNotReady"
	}
	set(corev1.PodReady, ready && gatesOpen, notReady)
	status.ContainerStatuses = containerStatuses(pod.Spec.Containers, status.ContainerStatuses, at, pod, now)
	status.InitContainerStatuses = initStatuses(pod, status.InitContainerStatuses, at, now)
	return status
}

func containerStatuses(containers []corev1.Container, old []corev1.ContainerStatus, at stage, pod *corev1.Pod, now metav1.Time) []corev1.ContainerStatus {
	out := make([]corev1.ContainerStatus, 0, len(containers))
	for _, container := range containers {
		before := statusOf(old, container.Name)
		status := corev1.ContainerStatus{Name: container.Name, Image: container.Image, RestartCount: at.restarts}
		started := at.phase == running
		status.Started = &started
		since := now
		if before.State.Running != nil {
			since = before.State.Running.StartedAt
		}
		if at.phase != creating {
			status.ImageID = container.Image
			status.ContainerID = fmt.Sprintf("testenv://%s/%s", pod.UID, container.Name)
		}
		switch at.phase {
		case creating, blocked:
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: at.reason, Message: at.message}
		case running:
			status.Ready = true
			status.State.Running = &corev1.ContainerStateRunning{StartedAt: since}
		case succeeded, failed:
			if before.State.Terminated != nil {
				status.State.Terminated = before.State.Terminated
				break
			}
			status.State.Terminated = &corev1.ContainerStateTerminated{
				ExitCode: at.exitCode, Reason: at.reason, StartedAt: since, FinishedAt: now, ContainerID: status.ContainerID,
			}
		}
		out = append(out, status)
	}
	return out
}

// initStatuses says that init containers ended well (sidecars: run) once the pod is past creation.
func initStatuses(pod *corev1.Pod, old []corev1.ContainerStatus, at stage, now metav1.Time) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, container := range pod.Spec.InitContainers {
		one := at
		sidecar := container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
		if at.phase != creating && !(sidecar && at.phase == running) {
			one = stage{phase: succeeded, reason: "Completed"}
		}
		out = append(out, containerStatuses([]corev1.Container{container}, old, one, pod, now)...)
		if one.phase == succeeded {
			out[len(out)-1].Ready = true
		}
	}
	return out
}

func statusOf(statuses []corev1.ContainerStatus, name string) corev1.ContainerStatus {
	for _, status := range statuses {
		if status.Name == name {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

func conditionTrue(conditions []corev1.PodCondition, kind corev1.PodConditionType) bool {
	for _, condition := range conditions {
		if condition.Type == kind {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func setCondition(conditions *[]corev1.PodCondition, kind corev1.PodConditionType, value bool, reason string, generation int64, now metav1.Time) {
	status := corev1.ConditionFalse
	if value {
		status, reason = corev1.ConditionTrue, ""
	}
	for i := range *conditions {
		condition := &(*conditions)[i]
		if condition.Type != kind {
			continue
		}
		if condition.Status != status {
			condition.LastTransitionTime = now
		}
		condition.Status, condition.Reason, condition.ObservedGeneration = status, reason, generation
		return
	}
	*conditions = append(*conditions, corev1.PodCondition{
		Type: kind, Status: status, Reason: reason, ObservedGeneration: generation, LastTransitionTime: now,
	})
}
