package tools

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/disk"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/tools/record"
)

func TestPager(t *testing.T) {
	w := begin(t)
	const many = 23
	secrets := w.kube.CoreV1().Secrets(w.namespace)
	for number := range many {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%02d", number)}}
		_, err := secrets.Create(w.ctx, secret, metav1.CreateOptions{})
		ok(t, err)
	}
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return secrets.List(ctx, options)
	})
	pages.PageSize = 5
	seen := 0
	ok(t, pages.EachListItem(w.ctx, metav1.ListOptions{}, func(runtime.Object) error { seen++; return nil }))
	list, isPaged, err := pages.List(w.ctx, metav1.ListOptions{})
	ok(t, err)
	if seen != many || !isPaged || meta.LenList(list) != many {
		t.Fatal(seen, isPaged, meta.LenList(list))
	}
}

func TestRecorders(t *testing.T) {
	w := begin(t)
	about := w.create(t, "about")
	old := record.NewBroadcaster(record.WithContext(w.ctx))
	old.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: w.kube.CoreV1().Events("")})
	older := old.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "tools"})
	for range 3 {
		older.Event(about, corev1.EventTypeWarning, "Old", "because")
	}
	w.until(t, "an event three times", func() bool {
		list, err := w.kube.CoreV1().Events(w.namespace).List(w.ctx, metav1.ListOptions{FieldSelector: "reason=Old"})
		return err == nil && len(list.Items) == 1 && list.Items[0].Count == 3
	})
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: w.kube.EventsV1()})
	ok(t, broadcaster.StartRecordingToSinkWithContext(w.ctx))
	defer broadcaster.Shutdown()
	recorder := broadcaster.NewRecorder(scheme.Scheme, "tools.example.com/recorder")
	list := func() []*int32 {
		found, err := w.kube.EventsV1().Events(w.namespace).List(w.ctx, metav1.ListOptions{FieldSelector: "reason=New"})
		var counts []*int32
		for _, event := range found.Items {
			counts = append(counts, nil)
			if err == nil && event.Series != nil {
				counts[len(counts)-1] = &event.Series.Count
			}
		}
		return counts
	}
	recorder.Eventf(about, nil, corev1.EventTypeNormal, "New", "Try", "once")
	w.until(t, "an event", func() bool { return len(list()) == 1 })
	recorder.Eventf(about, nil, corev1.EventTypeNormal, "New", "Try", "once")
	w.until(t, "a series", func() bool { found := list(); return len(found) == 1 && found[0] != nil && *found[0] == 2 })
}

func TestDiscoveryAndMappers(t *testing.T) {
	w := begin(t)
	folder := t.TempDir()
	cached, err := disk.NewCachedDiscoveryClientForConfig(w.config, folder, folder+"/http", time.Minute)
	ok(t, err)
	for range 2 {
		groups, lists, err := cached.ServerGroupsAndResources()
		ok(t, err)
		if len(groups) < 10 || len(lists) < 15 {
			t.Fatal(len(groups), len(lists))
		}
		_, err = cached.OpenAPISchema()
		ok(t, err)
		paths, err := cached.OpenAPIV3().Paths()
		ok(t, err)
		_, err = paths["apis/apps/v1"].Schema("application/json")
		ok(t, err)
		cached.Invalidate()
	}
	kept := memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(w.config))
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(kept)
	short := restmapper.NewShortcutExpander(mapper, kept, nil)
	words := map[string]string{"deploy": "Deployment", "cm": "ConfigMap", "hpa": "HorizontalPodAutoscaler"}
	for word, kind := range words {
		found, err := short.KindFor(schema.GroupVersionResource{Resource: word})
		ok(t, err)
		if found.Kind != kind {
			t.Fatal(word, found)
		}
	}
	all, is := restmapper.NewDiscoveryCategoryExpander(kept).Expand("all")
	if !is || len(all) < 8 {
		t.Fatal(all)
	}
}

func TestScaleMetadataAndDynamicClients(t *testing.T) {
	w := begin(t)
	one, labels := int32(1), map[string]string{"app": "web"}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}
	_, err := w.kube.AppsV1().Deployments(w.namespace).Create(w.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: template,
		},
	}, metav1.CreateOptions{})
	ok(t, err)
	client := discovery.NewDiscoveryClientForConfigOrDie(w.config)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	resolver := scale.NewDiscoveryScaleKindResolver(client)
	scales, err := scale.NewForConfig(w.config, mapper, dynamic.LegacyAPIPathResolverFunc, resolver)
	ok(t, err)
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	found, err := scales.Scales(w.namespace).Get(w.ctx, deployments, "web", metav1.GetOptions{})
	ok(t, err)
	if found.Spec.Replicas != 1 || found.Status.Selector != "app=web" {
		t.Fatal(found)
	}
	found.Spec.Replicas = 4
	found, err = scales.Scales(w.namespace).Update(w.ctx, deployments, found, metav1.UpdateOptions{})
	ok(t, err)
	changed, err := scales.Scales(w.namespace).Patch(w.ctx, deployments.WithVersion("v1"), "web", types.MergePatchType,
		[]byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})
	ok(t, err)
	if found.Spec.Replicas != 4 || changed.Spec.Replicas != 2 {
		t.Fatal(found, changed)
	}
	resource := appsv1.SchemeGroupVersion.WithResource("deployments")
	metadatas := metadata.NewForConfigOrDie(w.config).Resource(resource).Namespace(w.namespace)
	labelled := []byte(`{"metadata":{"labels":{"of":"tools"}}}`)
	_, err = metadatas.Patch(w.ctx, "web", types.MergePatchType, labelled, metav1.PatchOptions{})
	ok(t, err)
	partial, err := metadatas.Get(w.ctx, "web", metav1.GetOptions{})
	ok(t, err)
	dynamics := dynamic.NewForConfigOrDie(w.config).Resource(resource).Namespace(w.namespace)
	whole, err := dynamics.Get(w.ctx, "web", metav1.GetOptions{})
	ok(t, err)
	if partial.Labels["of"] != "tools" || whole.GetLabels()["of"] != "tools" {
		t.Fatal(partial, whole)
	}
}
