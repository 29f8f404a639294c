package fakenode

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStages(t *testing.T) {
	always, never, onFailure := corev1.RestartPolicyAlways, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure
	for name, row := range map[string]struct {
		policy      corev1.RestartPolicy
		annotations map[string]string
		age         time.Duration
		want        stage
	}{
		"young pods are being created":       {always, nil, 50 * time.Millisecond, stage{phase: creating, reason: "ContainerCreating", again: 150 * time.Millisecond}},
		"then they run":                      {always, nil, 200 * time.Millisecond, stage{phase: running}},
		"the annotation delays":              {always, map[string]string{AnnotationReadyAfter: "5s"}, time.Second, stage{phase: creating, reason: "ContainerCreating", again: 4 * time.Second}},
		"never is never":                     {always, map[string]string{AnnotationReadyAfter: "never"}, time.Hour, stage{phase: creating, reason: "ContainerCreating"}},
		"a failing image":                    {always, map[string]string{AnnotationFail: "ImagePullBackOff"}, 0, failing("ImagePullBackOff", 0)},
		"a crash loop counts restarts":       {always, map[string]string{AnnotationFail: "CrashLoopBackOff"}, 5 * time.Second, failing("CrashLoopBackOff", 5*time.Second)},
		"healthy at first":                   {always, map[string]string{AnnotationFail: "Error", AnnotationFailAfter: "3s"}, time.Second, stage{phase: running, again: 2 * time.Second}},
		"job pods run":                       {never, map[string]string{AnnotationRunFor: "2s"}, 1200 * time.Millisecond, stage{phase: running, again: time.Second}},
		"job pods end":                       {never, nil, 500 * time.Millisecond, stage{phase: succeeded, reason: "Completed"}},
		"job pods end on failure, too":       {onFailure, nil, 500 * time.Millisecond, stage{phase: succeeded, reason: "Completed"}},
		"job pods fail":                      {never, map[string]string{AnnotationExitCode: "3"}, time.Second, stage{phase: failed, reason: "Error", exitCode: 3}},
		"job pods that restart crash-loop":   {onFailure, map[string]string{AnnotationExitCode: "3"}, 500 * time.Millisecond, failing("CrashLoopBackOff", 0)},
		"the first crash is the first start": {always, map[string]string{AnnotationFail: "CrashLoopBackOff"}, 0, stage{phase: blocked, reason: "CrashLoopBackOff", message: "asked for by the annotation " + AnnotationFail, restarts: 1, again: restartEvery}},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := parseBehaviour(row.annotations, nil, 200*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: row.policy}}
			if got := nextStage(pod, want, row.age); got != row.want {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
		})
	}
}

func TestNamespaceAnnotationsAreDefaults(t *testing.T) {
	namespace := map[string]string{AnnotationReadyAfter: "7s", AnnotationFail: "Boom"}
	got, err := parseBehaviour(map[string]string{AnnotationFail: ""}, namespace, time.Second)
	if err != nil || got.readyAfter != 7*time.Second || got.failReason != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestBadAnnotationsAreErrors(t *testing.T) {
	for name, value := range map[string]string{
		AnnotationReadyAfter: "soon", AnnotationRunFor: "-1s", AnnotationExitCode: "256",
	} {
		if _, err := parseBehaviour(map[string]string{name: value}, nil, 0); err == nil {
			t.Errorf("%s: %q was accepted", name, value)
		}
	}
}

func TestRunningPodsAreReadyAndStatusIsStable(t *testing.T) {
	sidecar := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Generation: 3},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "migrate"}, {Name: "proxy", RestartPolicy: &sidecar}},
			Containers:     []corev1.Container{{Name: "app", Image: "app:1"}},
		},
	}
	first := podStatus(pod, stage{phase: running}, "10.244.0.2", "192.0.2.10", metav1.Unix(100, 0))
	if !conditionTrue(first.Conditions, corev1.PodReady) || first.ObservedGeneration != 3 {
		t.Errorf("not ready: %+v", first)
	}
	if first.InitContainerStatuses[0].State.Terminated == nil || first.InitContainerStatuses[1].State.Running == nil {
		t.Errorf("init containers: %+v", first.InitContainerStatuses)
	}
	pod.Status = first
	second := podStatus(pod, stage{phase: running}, "", "192.0.2.10", metav1.Unix(200, 0))
	if !equality.Semantic.DeepEqual(first, second) {
		t.Errorf("a second look changed the status: %+v", second)
	}
}
