package fakenode

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// retryBlocked is how often a pod that waits for a claim, ConfigMap or Secret is looked at again.
const retryBlocked = time.Second

func (c *controller) pod(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	now := time.Now()
	want, asked := c.behaviour(pod)
	if pod.DeletionTimestamp != nil {
		return c.terminate(ctx, pod, want, now)
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return 0, nil
	}
	if pod.Spec.NodeName == "" {
		if len(pod.Spec.SchedulingGates) > 0 || want.pending {
			return 0, nil
		}
		return c.schedule(ctx, pod)
	}
	node, err := c.nodes.Get(pod.Spec.NodeName)
	if err != nil {
		return 0, err
	}
	at := nextStage(pod, want, c.boundSince(pod, now))
	switch {
	case asked != nil:
		at = stage{phase: blocked, reason: "InvalidAnnotation", message: asked.Error()}
	case at.phase == running && pod.Status.PodIP == "":
		missing, err := c.missingReference(ctx, pod)
		if err != nil {
			return 0, err
		}
		if missing != "" {
			at = stage{phase: blocked, reason: "CreateContainerConfigError", message: missing, again: retryBlocked}
		}
	}
	podIP := ""
	if at.phase != creating && at.phase != blocked && pod.Status.PodIP == "" {
		podIP = c.nextPodIP()
	}
	status := podStatus(pod, at, podIP, address(node), metav1.NewTime(now))
	if equality.Semantic.DeepEqual(status, pod.Status) {
		return at.again, nil
	}
	changed := pod.DeepCopy()
	changed.Status = status
	_, err = c.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	return at.again, err
}

func (c *controller) behaviour(pod *corev1.Pod) (behaviour, error) {
	var defaults map[string]string
	if namespace, err := c.namespaces.Get(pod.Namespace); err == nil {
		defaults = namespace.Annotations
	}
	return parseBehaviour(pod.Annotations, defaults, c.options.ReadyAfter)
}

// terminate removes a deleted pod, as a kubelet does once its containers are gone.
func (c *controller) terminate(ctx context.Context, pod *corev1.Pod, want behaviour, now time.Time) (time.Duration, error) {
	// The API server sets the deletion timestamp to the end of the grace period.
	var grace time.Duration
	if pod.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	}
	if grace == 0 {
		return 0, nil // the kubelet's part is done; only a finalizer is left
	}
	if gone := now.Sub(pod.DeletionTimestamp.Add(-grace)); gone < want.terminateAfter {
		return want.terminateAfter - gone, nil
	}
	zero := int64(0)
	err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero,
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return 0, nil // replaced by another pod of the same name, or gone
	}
	return 0, err
}

func (c *controller) schedule(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return 0, err
	}
	var fitting []*corev1.Node
	for _, node := range nodes {
		if fits(pod, node) {
			fitting = append(fitting, node)
		}
	}
	if len(fitting) == 0 {
		return retryBlocked, c.unschedulable(ctx, pod, fmt.Sprintf("0/%d nodes are available: none matches the pod's node selector or affinity.", len(nodes)))
	}
	for _, volume := range pod.Spec.Volumes {
		name := claimName(pod, volume)
		if name == "" {
			continue
		}
		claim, err := c.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
		if err != nil {
			return retryBlocked, c.unschedulable(ctx, pod, fmt.Sprintf("persistentvolumeclaim %q not found", name))
		}
		if claim.Status.Phase != corev1.ClaimBound {
			return retryBlocked, c.unschedulable(ctx, pod, "pod has unbound immediate PersistentVolumeClaims")
		}
	}
	node := fitting[spread(string(pod.UID), len(fitting))]
	return 0, c.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node.Name},
	}, metav1.CreateOptions{})
}

func claimName(pod *corev1.Pod, volume corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		return pod.Name + "-" + volume.Name
	}
	return ""
}

// fits knows node selectors and the affinity by node name that DaemonSets use.
func fits(pod *corev1.Pod, node *corev1.Node) bool {
	if node.Spec.Unschedulable && !daemon(pod) {
		return false
	}
	for name, value := range pod.Spec.NodeSelector {
		if node.Labels[name] != value {
			return false
		}
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		match := true
		for _, field := range term.MatchFields {
			if field.Key != "metadata.name" {
				continue
			}
			named := false
			for _, name := range field.Values {
				named = named || name == node.Name
			}
			match = match && named
		}
		if match {
			return true
		}
	}
	return false
}

func daemon(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

func (c *controller) unschedulable(ctx context.Context, pod *corev1.Pod, message string) error {
	changed := pod.DeepCopy()
	setCondition(&changed.Status.Conditions, corev1.PodScheduled, false, corev1.PodReasonUnschedulable, pod.Generation, metav1.Now())
	for i := range changed.Status.Conditions {
		if changed.Status.Conditions[i].Type == corev1.PodScheduled {
			changed.Status.Conditions[i].Message = message
		}
	}
	if equality.Semantic.DeepEqual(changed.Status, pod.Status) {
		return nil
	}
	_, err := c.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	return err
}

// missingReference names the first ConfigMap or Secret that the pod cannot start without, or "".
func (c *controller) missingReference(ctx context.Context, pod *corev1.Pod) (string, error) {
	configMaps, secrets := references(pod)
	var message string
	check := func(kind, name string, err error) error {
		if apierrors.IsNotFound(err) {
			message = fmt.Sprintf("%s %q not found", kind, name)
			return errMissing
		}
		return err
	}
	for _, name := range configMaps {
		_, err := c.client.CoreV1().ConfigMaps(pod.Namespace).Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
		if err := check("configmap", name, err); err != nil {
			return message, notMissing(err)
		}
	}
	for _, name := range secrets {
		_, err := c.client.CoreV1().Secrets(pod.Namespace).Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
		if err := check("secret", name, err); err != nil {
			return message, notMissing(err)
		}
	}
	return "", nil
}

var errMissing = errors.New("missing")

func notMissing(err error) error {
	if errors.Is(err, errMissing) {
		return nil
	}
	return err
}

// references lists the ConfigMaps and Secrets of a pod that are not optional.
func references(pod *corev1.Pod) (configMaps, secrets []string) {
	add := func(list *[]string, name string, optional *bool) {
		if name != "" && (optional == nil || !*optional) {
			*list = append(*list, name)
		}
	}
	for _, volume := range pod.Spec.Volumes {
		if source := volume.ConfigMap; source != nil {
			add(&configMaps, source.Name, source.Optional)
		}
		if source := volume.Secret; source != nil {
			add(&secrets, source.SecretName, source.Optional)
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ConfigMap != nil {
				add(&configMaps, source.ConfigMap.Name, source.ConfigMap.Optional)
			}
			if source.Secret != nil {
				add(&secrets, source.Secret.Name, source.Secret.Optional)
			}
		}
	}
	containers := append(append([]corev1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...)
	for _, container := range containers {
		for _, from := range container.EnvFrom {
			if from.ConfigMapRef != nil {
				add(&configMaps, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
			}
			if from.SecretRef != nil {
				add(&secrets, from.SecretRef.Name, from.SecretRef.Optional)
			}
		}
		for _, variable := range container.Env {
			if variable.ValueFrom == nil {
				continue
			}
			if ref := variable.ValueFrom.ConfigMapKeyRef; ref != nil {
				add(&configMaps, ref.Name, ref.Optional)
			}
			if ref := variable.ValueFrom.SecretKeyRef; ref != nil {
				add(&secrets, ref.Name, ref.Optional)
			}
		}
	}
	return configMaps, secrets
}
