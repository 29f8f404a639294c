// Package fakenode plays scheduler, kubelet, volume provisioner and load balancer for a cluster without machines.
//
// Two nodes are ready. Pods are bound to one and go through the life their annotations ask for; claims get
// a volume; services of type LoadBalancer get an address; deleted pods go away.
package fakenode

import (
	"context"
	"fmt"
	"hash/fnv"
	"log"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const workers = 4

// Options are the defaults of all pods.
type Options struct {
	// ReadyAfter is the time from binding to ready.
	ReadyAfter time.Duration
}

type key struct {
	kind, namespace, name string
}

type controller struct {
	client     kubernetes.Interface
	options    Options
	queue      workqueue.TypedRateLimitingInterface[key]
	pods       corelisters.PodLister
	namespaces corelisters.NamespaceLister
	nodes      corelisters.NodeLister
	services   corelisters.ServiceLister
	claims     corelisters.PersistentVolumeClaimLister
	volumes    corelisters.PersistentVolumeLister

	mutex sync.Mutex
	// bound remembers when a pod was first seen bound; API times have a resolution of a second only.
	bound   map[types.UID]time.Time
	nextPod int
}

// Run plays the nodes until the context ends. Errors of single objects are logged and retried.
func Run(ctx context.Context, client kubernetes.Interface, options Options) {
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	c := &controller{
		client:  client,
		options: options,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[key](20*time.Millisecond, 5*time.Second)),
		pods:       core.Pods().Lister(),
		namespaces: core.Namespaces().Lister(),
		nodes:      core.Nodes().Lister(),
		services:   core.Services().Lister(),
		claims:     core.PersistentVolumeClaims().Lister(),
		volumes:    core.PersistentVolumes().Lister(),
		bound:      map[types.UID]time.Time{},
	}
	c.watch(core.Pods().Informer(), "pod")
	c.watch(core.Services().Informer(), "service")
	c.watch(core.PersistentVolumeClaims().Informer(), "claim")
	c.watch(core.PersistentVolumes().Informer(), "volume")
	c.watch(core.Nodes().Informer(), "node")
	_ = core.Namespaces().Informer()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for _, name := range Names {
		c.queue.Add(key{kind: "node", name: name})
	}
	c.queue.Add(key{kind: "class", name: storageClass})

	var running sync.WaitGroup
	for range workers {
		running.Add(1)
		go func() {
			defer running.Done()
			for c.next(ctx) {
			}
		}()
	}
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
	factory.Shutdown()
}

func (c *controller) watch(informer cache.SharedIndexInformer, kind string) {
	add := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		namespace, name, err := namespaceAndName(object)
		if err != nil {
			log.Printf("fake nodes: %v", err)
			return
		}
		c.queue.Add(key{kind, namespace, name})
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, object any) { add(object) },
		DeleteFunc: func(object any) {
			if pod, ok := object.(*corev1.Pod); ok {
				c.forget(pod.UID)
			}
			add(object)
		},
	})
	if err != nil {
		log.Printf("fake nodes: watch %ss: %v", kind, err)
	}
}

func namespaceAndName(object any) (string, string, error) {
	text, err := cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		return "", "", err
	}
	return cache.SplitMetaNamespaceKey(text)
}

func (c *controller) next(ctx context.Context) bool {
	item, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(item)
	again, err := c.reconcile(ctx, item)
	switch {
	case ctx.Err() != nil:
	case err == nil || apierrors.IsNotFound(err):
		c.queue.Forget(item)
		if again > 0 {
			c.queue.AddAfter(item, again)
		}
	default:
		if !apierrors.IsConflict(err) {
			log.Printf("fake nodes: %s %s/%s: %v", item.kind, item.namespace, item.name, err)
		}
		c.queue.AddRateLimited(item)
	}
	return true
}

// reconcile moves one object a step forward and says when to look at it again.
func (c *controller) reconcile(ctx context.Context, item key) (time.Duration, error) {
	switch item.kind {
	case "pod":
		pod, err := c.pods.Pods(item.namespace).Get(item.name)
		if err != nil {
			return 0, err
		}
		return c.pod(ctx, pod)
	case "service":
		service, err := c.services.Services(item.namespace).Get(item.name)
		if err != nil {
			return 0, err
		}
		return 0, c.service(ctx, service)
	case "claim":
		claim, err := c.claims.PersistentVolumeClaims(item.namespace).Get(item.name)
		if err != nil {
			return 0, err
		}
		return 0, c.claim(ctx, claim)
	case "volume":
		volume, err := c.volumes.Get(item.name)
		if err != nil {
			return 0, err
		}
		return 0, c.volume(ctx, volume)
	case "node":
		return 0, c.node(ctx, item.name)
	case "class":
		return 0, c.class(ctx)
	}
	return 0, fmt.Errorf("unknown kind %q", item.kind)
}

// boundSince is how long the pod is known to be bound.
func (c *controller) boundSince(pod *corev1.Pod, now time.Time) time.Duration {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	since, known := c.bound[pod.UID]
	if !known {
		since = now
		if start := pod.Status.StartTime; start != nil { // this process was restarted
			since = start.Time
		}
		c.bound[pod.UID] = since
	}
	return now.Sub(since)
}

func (c *controller) forget(uid types.UID) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.bound, uid)
}

// nextPodIP hands out addresses of 10.244.0.0/16 in turn.
func (c *controller) nextPodIP() string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.nextPod = c.nextPod%65000 + 1
	return fmt.Sprintf("10.244.%d.%d", c.nextPod/250, c.nextPod%250+2)
}

// spread is the same choice among n for the same text.
func spread(text string, n int) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(text))
	return int(hash.Sum32() % uint32(n))
}
