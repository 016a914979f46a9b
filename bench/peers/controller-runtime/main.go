// controller-runtime as a subject: a cache, a controller that does nothing, or the queue alone, as the bench says.
//
// Everything is as its documentation shows it, with its own defaults, but for three things: the client is not throttled, kinds are mapped
// without discovery, because the server of the bench has none, and objects are asked for as JSON, because the server sends nothing else.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	marker = "marker"
	keys   = 500_000
	alone  = 1_000_000
)

func main() {
	if len(os.Args) != 4 {
		fail(fmt.Errorf("three arguments are wanted (url, task, keep), not %q", os.Args[1:]))
	}
	log.SetLogger(zap.New(zap.WriteTo(os.Stderr), zap.Level(zapError{})))
	url, task, keep := os.Args[1], os.Args[2], os.Args[3]
	fmt.Println("ready")
	words := bufio.NewScanner(os.Stdin)
	if !words.Scan() || words.Text() != "go" {
		fail(fmt.Errorf("the first word is %q", words.Text()))
	}
	var err error
	switch task {
	case "cache":
		err = runCache(url, keep, words)
	case "controller":
		err = runController(url, keep, words)
	case "queue":
		runQueue()
	default:
		err = fmt.Errorf("there is no task %q", task)
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Println("failed", err)
	os.Exit(1)
}

func config(url string) *rest.Config {
	return &rest.Config{Host: url, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

func mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	return mapper
}

// runCache keeps every Pod, whole or without managedFields, or only its metadata.
func runCache(url, keep string, words *bufio.Scanner) error {
	options := cache.Options{Scheme: scheme.Scheme, Mapper: mapper()}
	if keep != "received" {
		options.DefaultTransform = cache.TransformStripManagedFields()
	}
	informers, err := cache.New(config(url), options)
	if err != nil {
		return err
	}
	var object client.Object = &corev1.Pod{}
	if keep == "metadata" {
		object = &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	}
	ctx := context.Background()
	go func() {
		if err := informers.Start(ctx); err != nil {
			fail(err)
		}
	}()
	informer, err := informers.GetInformer(ctx, object)
	if err != nil {
		return err
	}
	count := func() (int, int) {
		if keep == "metadata" {
			return 0, 0
		}
		var pods corev1.PodList
		if err := informers.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
			fail(err)
		}
		containers := 0
		for i := range pods.Items {
			containers += len(pods.Items[i].Spec.Containers)
		}
		return len(pods.Items), containers
	}
	changes := 0
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return fmt.Errorf("the informer has no store")
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		old, object := before.(client.Object), after.(client.Object)
		if old.GetResourceVersion() == object.GetResourceVersion() {
			return // a relist tells of every object
		}
		changes++
		if object.GetName() == marker {
			fmt.Println("marked", changes, len(shared.GetStore().ListKeys()))
		}
	}})
	if err != nil {
		return err
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return fmt.Errorf("the cache is not synced")
	}
	fmt.Println("synced", len(shared.GetStore().ListKeys()))
	for words.Scan() {
		switch words.Text() {
		case "collect":
			runtime.GC()
			debug.FreeOSMemory()
			fmt.Println("collected")
		case "read":
			started := time.Now()
			objects, containers := count()
			each := time.Since(started).Seconds() * 1e6 / float64(max(objects, 1))
			fmt.Println("read", objects, containers, each)
		}
	}
	return nil
}

// meter is what is noted of reconciles.
type meter struct {
	client client.Client
	fresh  func() client.Object
	count  atomic.Int64
	lock   sync.Mutex
	delays []time.Duration
}

func (m *meter) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pod := m.fresh()
	if err := m.client.Get(ctx, request.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if sent, err := strconv.ParseInt(pod.GetAnnotations()["bench/sent"], 10, 64); err == nil && sent > 0 { // the list says 0
		m.lock.Lock()
		m.delays = append(m.delays, time.Duration(time.Now().UnixNano()-sent))
		m.lock.Unlock()
	}
	count := m.count.Add(1)
	if count%1000 == 0 {
		fmt.Println("reconciled", count)
	}
	if pod.GetName() == marker {
		fmt.Println("marked", count, m.quantiles())
	}
	return reconcile.Result{}, nil
}

// quantiles are the median and the 99th percentile in milliseconds, and how many there are.
func (m *meter) quantiles() string {
	m.lock.Lock()
	defer m.lock.Unlock()
	delays := slices.Clone(m.delays)
	slices.Sort(delays)
	at := func(part float64) float64 {
		if len(delays) == 0 {
			return 0
		}
		return delays[int(float64(len(delays)-1)*part+0.5)].Seconds() * 1e3
	}
	return fmt.Sprint(at(0.5), " ", at(0.99), " ", len(delays))
}

// runController reconciles Pods, or their metadata, and does nothing for them but to read each from the cache.
func runController(url, keep string, words *bufio.Scanner) error {
	manager, err := ctrl.NewManager(config(url), ctrl.Options{
		Scheme:         scheme.Scheme,
		Metrics:        server.Options{BindAddress: "0"},
		MapperProvider: staticMapper,
		Cache:          cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
	})
	if err != nil {
		return err
	}
	fresh := func() client.Object { return &corev1.Pod{} }
	if keep == "metadata" {
		fresh = func() client.Object {
			return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
		}
	}
	meter := &meter{client: manager.GetClient(), fresh: fresh}
	if err := ctrl.NewControllerManagedBy(manager).Named("pods").For(fresh()).Complete(meter); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for words.Scan() {
		}
		cancel()
	}()
	return manager.Start(ctx)
}

func runQueue() {
	queue := priorityqueue.New[reconcile.Request]("bench")
	requests := make([]reconcile.Request, keys)
	for i := range requests {
		requests[i].NamespacedName = types.NamespacedName{Namespace: "default", Name: "pod-" + strconv.Itoa(i)}
	}
	started := time.Now()
	for _, request := range requests {
		queue.Add(request)
	}
	added := time.Since(started)
	count := 0
	for range requests {
		request, _ := queue.Get()
		queue.Done(request)
		count++
	}
	drained := time.Since(started) - added
	started = time.Now()
	for i := range alone {
		queue.Add(requests[i%keys])
		request, _ := queue.Get()
		queue.Done(request)
	}
	each := time.Since(started).Seconds() * 1e6 / alone
	fmt.Println("queue", count, added.Seconds(), drained.Seconds(), each)
}
