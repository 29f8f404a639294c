package fakenode

import (
	"context"
	"fmt"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Names are the nodes of every test environment.
var Names = []string{"node-a", "node-b"}

const (
	storageClass = "standard"
	provisioner  = prefix + "volumes"
	provisioned  = "pv.kubernetes.io/provisioned-by"
)

// node keeps one of Names present, ready and without taints.
func (c *controller) node(ctx context.Context, name string) error {
	index := -1
	for i, known := range Names {
		if known == name {
			index = i
		}
	}
	if index < 0 {
		return nil // somebody else's
	}
	nodes := c.client.CoreV1().Nodes()
	found, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		found, err = nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
				corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", index+1), corev1.LabelTopologyRegion: "test",
			},
		}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // the watch brings it
		}
	}
	if err != nil {
		return err
	}
	node := found.DeepCopy()
	taints := node.Spec.Taints[:0:0]
	for _, taint := range node.Spec.Taints {
		if taint.Key != corev1.TaintNodeNotReady {
			taints = append(taints, taint)
		}
	}
	if len(taints) != len(node.Spec.Taints) {
		node.Spec.Taints = taints
		if node, err = nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	before := node.Status.DeepCopy()
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", index+10)},
		{Type: corev1.NodeHostName, Address: name},
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("5000"), corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
	}
	node.Status.Capacity, node.Status.Allocatable = room, room
	node.Status.NodeInfo.KubeletVersion = "v0.0.0-testenv"
	node.Status.NodeInfo.OperatingSystem, node.Status.NodeInfo.Architecture = "linux", runtime.GOARCH
	setNodeCondition(&node.Status, corev1.NodeReady, corev1.ConditionTrue, "FakeKubelet")
	for _, pressure := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		setNodeCondition(&node.Status, pressure, corev1.ConditionFalse, "FakeKubelet")
	}
	if equality.Semantic.DeepEqual(before, &node.Status) {
		return nil
	}
	_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

func setNodeCondition(status *corev1.NodeStatus, kind corev1.NodeConditionType, value corev1.ConditionStatus, reason string) {
	for i := range status.Conditions {
		condition := &status.Conditions[i]
		if condition.Type == kind {
			if condition.Status != value {
				condition.LastTransitionTime = metav1.Now()
			}
			condition.Status, condition.Reason = value, reason
			return
		}
	}
	status.Conditions = append(status.Conditions, corev1.NodeCondition{
		Type: kind, Status: value, Reason: reason, LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now(),
	})
}

func address(node *corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return "192.0.2.1"
}

// service gives a load balancer an address of 198.51.100.0/24 that no other has.
func (c *controller) service(ctx context.Context, service *corev1.Service) error {
	if service.DeletionTimestamp != nil || service.Spec.Type != corev1.ServiceTypeLoadBalancer ||
		len(service.Status.LoadBalancer.Ingress) > 0 || service.Annotations[AnnotationPending] == "true" {
		return nil
	}
	all, err := c.services.List(labels.Everything())
	if err != nil {
		return err
	}
	taken := map[string]bool{}
	for _, other := range all {
		for _, ingress := range other.Status.LoadBalancer.Ingress {
			taken[ingress.IP] = true
		}
	}
	start := spread(string(service.UID), 254)
	ip := ""
	for i := range 254 {
		ip = fmt.Sprintf("198.51.100.%d", (start+i)%254+1)
		if !taken[ip] {
			break
		}
	}
	changed := service.DeepCopy()
	mode := corev1.LoadBalancerIPModeVIP
	changed.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip, IPMode: &mode}}
	_, err = c.client.CoreV1().Services(service.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	return err
}

// class offers a default storage class.
func (c *controller) class(ctx context.Context) error {
	_, err := c.client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:        storageClass,
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner: provisioner,
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// claim makes a volume for a claim of any class; the real volume controller then binds the two.
func (c *controller) claim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.DeletionTimestamp != nil || claim.Spec.VolumeName != "" || claim.Annotations[AnnotationPending] == "true" {
		return nil
	}
	class, policy := "", corev1.PersistentVolumeReclaimDelete
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "pvc-" + string(claim.UID),
			Annotations: map[string]string{provisioned: provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: policy,
			StorageClassName:              class,
			VolumeMode:                    claim.Spec.VolumeMode,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/testenv/" + string(claim.UID)}},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	}
	_, err := c.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// volume deletes a volume of ours that its claim has left.
func (c *controller) volume(ctx context.Context, volume *corev1.PersistentVolume) error {
	left := volume.Status.Phase == corev1.VolumeReleased || volume.Status.Phase == corev1.VolumeFailed
	if !left || volume.DeletionTimestamp != nil || volume.Annotations[provisioned] != provisioner ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	return c.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &volume.UID},
	})
}
