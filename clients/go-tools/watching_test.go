package tools

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	watchtools "k8s.io/client-go/tools/watch"
)

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// The second candidate leads as soon as the first gives the Lease back.
func TestLeaderElection(t *testing.T) {
	w := begin(t)
	said := make(chan string, 4)
	stand := func(ctx context.Context, name string) {
		settings := resourcelock.ResourceLockConfig{Identity: name}
		lock, err := resourcelock.NewFromKubeconfig(
			resourcelock.LeasesResourceLock, w.namespace, "lead", settings, w.config, time.Second)
		if err != nil {
			said <- err.Error()
			return
		}
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 10 * time.Second, RenewDeadline: 8 * time.Second, RetryPeriod: 50 * time.Millisecond,
			ReleaseOnCancel: true, Name: name,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { said <- name + " leads" },
				OnStoppedLeading: func() { said <- name + " ended" },
			},
		})
	}
	first, stop := context.WithCancel(w.ctx)
	defer stop()
	go stand(first, "first")
	if word := <-said; word != "first leads" {
		t.Fatal(word)
	}
	go stand(w.ctx, "second")
	stop()
	words := <-said + ", " + <-said
	if words != "first ended, second leads" && words != "second leads, first ended" {
		t.Fatal(words)
	}
}

func TestUntilAndUntilWithSync(t *testing.T) {
	w := begin(t)
	isAdded := func(name string) watchtools.ConditionFunc {
		return func(event watch.Event) (bool, error) {
			object, is := event.Object.(*corev1.ConfigMap)
			return event.Type == watch.Added && is && object.Name == name, nil
		}
	}
	lists := cache.NewListWatchFromClient(w.kube.CoreV1().RESTClient(), "configmaps", w.namespace, fields.Everything())
	first := w.create(t, "first")
	go func() {
		_, _ = w.kube.CoreV1().ConfigMaps(w.namespace).Create(w.ctx, configMap("second"), metav1.CreateOptions{})
	}()
	_, err := watchtools.Until(w.ctx, first.ResourceVersion, lists, isAdded("second"))
	ok(t, err)
	_, err = watchtools.UntilWithSync(w.ctx, lists, &corev1.ConfigMap{}, nil, isAdded("first"))
	ok(t, err)
}

// A watch that the server ends goes on where it was, and nothing is missed or seen twice.
func TestRetryWatcher(t *testing.T) {
	w := begin(t)
	const many = 5
	var watches atomic.Int32
	begun := w.create(t, "begun")
	short := func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		watches.Add(1)
		one := int64(1)
		options.TimeoutSeconds = &one
		return w.kube.CoreV1().ConfigMaps(w.namespace).Watch(ctx, options)
	}
	source := &cache.ListWatch{WatchFuncWithContext: short}
	watcher, err := watchtools.NewRetryWatcherWithContext(w.ctx, begun.ResourceVersion, source)
	ok(t, err)
	defer watcher.Stop()
	for number := range many {
		name := fmt.Sprintf("retry-%d", number)
		w.create(t, name)
		for event := range watcher.ResultChan() {
			if object, is := event.Object.(*corev1.ConfigMap); is && strings.HasPrefix(object.Name, "retry-") {
				if event.Type != watch.Added || object.Name != name {
					t.Fatalf("%s %s, not %s", event.Type, object.Name, name)
				}
				break
			}
		}
		// The next one comes over another watch.
		seen := watches.Load()
		w.until(t, "another watch", func() bool {
			select {
			case <-watcher.ResultChan(): // of the ConfigMap kube-root-ca.crt: the watcher waits until it is taken
			default:
			}
			return number == many-1 || watches.Load() > seen
		})
	}
}

func TestInformers(t *testing.T) {
	w := begin(t)
	dynamicClient, metadataClient := dynamic.NewForConfigOrDie(w.config), metadata.NewForConfigOrDie(w.config)
	dynamics := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamicClient, 0, w.namespace, nil)
	metadatas := metadatainformer.NewFilteredSharedInformerFactory(metadataClient, 0, w.namespace, nil)
	types := informers.NewSharedInformerFactoryWithOptions(w.kube, 0, informers.WithNamespace(w.namespace))
	typed := types.Core().V1().ConfigMaps().Informer()
	all := map[string]cache.SharedIndexInformer{
		"dynamic":  dynamics.ForResource(configMaps).Informer(),
		"metadata": metadatas.ForResource(configMaps).Informer(),
		"typed":    typed,
	}
	seen := map[string]*[3]atomic.Int32{}
	for name, informer := range all {
		counts := &[3]atomic.Int32{}
		seen[name] = counts
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { counts[0].Add(1) },
			UpdateFunc: func(any, any) { counts[1].Add(1) },
			DeleteFunc: func(any) { counts[2].Add(1) },
		})
		ok(t, err)
	}
	w.create(t, "before")
	dynamics.Start(w.ctx.Done())
	metadatas.Start(w.ctx.Done())
	types.Start(w.ctx.Done())
	for name, informer := range all {
		if !cache.WaitForCacheSync(w.ctx.Done(), informer.HasSynced) {
			t.Fatalf("the %s informer does not sync", name)
		}
	}
	object := w.create(t, "after")
	object.Data = map[string]string{"changed": "yes"}
	mine := w.kube.CoreV1().ConfigMaps(w.namespace)
	_, err := mine.Update(w.ctx, object, metav1.UpdateOptions{})
	ok(t, err)
	ok(t, mine.Delete(w.ctx, "after", metav1.DeleteOptions{}))
	for name, counts := range seen {
		w.until(t, "a change, by the "+name+" informer", func() bool {
			return counts[0].Load() >= 2 && counts[1].Load() >= 1 && counts[2].Load() == 1
		})
	}
}

// The list comes over the watch, and its end is told.
func TestWatchList(t *testing.T) {
	w := begin(t)
	w.create(t, "there")
	yes := true
	watcher, err := w.kube.CoreV1().ConfigMaps(w.namespace).Watch(w.ctx, metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	ok(t, err)
	defer watcher.Stop()
	var names []string
	for event := range watcher.ResultChan() {
		object := event.Object.(*corev1.ConfigMap)
		if event.Type == watch.Bookmark {
			if object.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
				t.Fatalf("a bookmark without its mark: %v", object)
			}
			break
		}
		names = append(names, object.Name)
	}
	if !strings.Contains(strings.Join(names, " "), "there") {
		t.Fatal(names)
	}
}
