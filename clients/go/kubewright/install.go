package kubewright

// What a suite wants to be there before its tests: definitions, which are waited for, and objects.
//
// Everything is applied (server-side), so that a folder that has it already is no error.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

var (
	extensions      = schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
	definitions     = extensions.WithResource("customresourcedefinitions")
	definitionKind  = extensions.WithKind("CustomResourceDefinition")
	applying        = metav1.ApplyOptions{FieldManager: "kubewright-environment", Force: true}
	manifestEndings = []string{".yaml", ".yml", ".json"}
)

func install(ctx context.Context, config *rest.Config, paths []string, objects []runtime.Object) error {
	if len(paths) == 0 && len(objects) == 0 {
		return nil
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("kubewright: cannot make a client: %w", err)
	}
	var names []string
	for _, path := range paths {
		found, err := readDefinitions(path)
		if err != nil {
			return fmt.Errorf("kubewright: cannot read definitions of %s: %w", path, err)
		}
		for _, definition := range found {
			if _, err := client.Resource(definitions).Apply(ctx, definition.GetName(), definition, applying); err != nil {
				return fmt.Errorf("kubewright: cannot apply the definition %s of %s: %w", definition.GetName(), path, err)
			}
			names = append(names, definition.GetName())
		}
	}
	for _, name := range names {
		if err := waitFor(ctx, client.Resource(definitions), name, established); err != nil {
			return fmt.Errorf("kubewright: the definition %s was not established: %w", name, err)
		}
	}
	return applyObjects(ctx, config, client, objects)
}

// readDefinitions reads the CustomResourceDefinitions of a file, or of the files of a folder.
func readDefinitions(path string) ([]*unstructured.Unstructured, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	files := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		files = nil
		for _, entry := range entries {
			if !entry.IsDir() && slices.Contains(manifestEndings, filepath.Ext(entry.Name())) {
				files = append(files, filepath.Join(path, entry.Name()))
			}
		}
	}
	var found []*unstructured.Unstructured
	for _, file := range files {
		if found, err = appendDefinitions(found, file); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("there is no CustomResourceDefinition of apiextensions.k8s.io/v1 in it")
	}
	return found, nil
}

func appendDefinitions(found []*unstructured.Unstructured, path string) ([]*unstructured.Unstructured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	documents := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		document := &unstructured.Unstructured{}
		err := documents.Decode(&document.Object)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if document.GroupVersionKind() == definitionKind {
			found = append(found, document)
		}
	}
}

func established(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(each any) bool {
		condition, _ := each.(map[string]any)
		return condition["type"] == "Established" && condition["status"] == "True"
	})
}

func applyObjects(ctx context.Context, config *rest.Config, client dynamic.Interface, objects []runtime.Object) error {
	if len(objects) == 0 {
		return nil
	}
	discovered, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("kubewright: cannot make a client: %w", err)
	}
	groups, err := restmapper.GetAPIGroupResources(discovered)
	if err != nil {
		return fmt.Errorf("kubewright: cannot discover what the cluster serves: %w", err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, object := range objects {
		plain, err := asUnstructured(object)
		if err != nil {
			return err
		}
		kind := plain.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return fmt.Errorf("kubewright: the cluster does not serve %v: %w", kind, err)
		}
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			resource = client.Resource(mapping.Resource).Namespace(plain.GetNamespace())
			if plain.GetNamespace() == "" {
				resource = client.Resource(mapping.Resource).Namespace(metav1.NamespaceDefault)
			}
		}
		if plain.GetName() == "" {
			_, err = resource.Create(ctx, plain, metav1.CreateOptions{FieldManager: applying.FieldManager})
		} else {
			_, err = resource.Apply(ctx, plain.GetName(), plain, applying)
		}
		if err != nil {
			return fmt.Errorf("kubewright: cannot apply the %s %q: %w", kind.Kind, plain.GetName(), err)
		}
	}
	return nil
}

func asUnstructured(object runtime.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("kubewright: cannot encode a %T: %w", object, err)
	}
	plain := &unstructured.Unstructured{Object: content}
	if plain.GetKind() == "" {
		// Typed objects usually leave out what their type says.
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		if err != nil {
			return nil, fmt.Errorf("kubewright: a %T needs its apiVersion and kind: %w", object, err)
		}
		plain.SetGroupVersionKind(kinds[0])
	}
	return plain, nil
}

// waitFor returns when an object is as wanted, and an error when the context ends first. That the object is not there
// yet is waited for too.
func waitFor(
	ctx context.Context, resource dynamic.ResourceInterface, name string, wanted func(*unstructured.Unstructured) bool,
) error {
	only := fields.OneTermEqualSelector("metadata.name", name).String()
	var last *unstructured.Unstructured
	for {
		list, err := resource.List(ctx, metav1.ListOptions{FieldSelector: only})
		if err != nil {
			return explain(ctx, err, last)
		}
		for i := range list.Items {
			if last = &list.Items[i]; wanted(last) {
				return nil
			}
		}
		watch, err := resource.Watch(ctx, metav1.ListOptions{FieldSelector: only, ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			return explain(ctx, err, last)
		}
		for event := range watch.ResultChan() {
			if object, is := event.Object.(*unstructured.Unstructured); is {
				if last = object; wanted(last) {
					watch.Stop()
					return nil
				}
			}
		}
		// A watch may end at any time; it begins again with a list.
		if ctx.Err() != nil {
			return explain(ctx, ctx.Err(), last)
		}
	}
}

func explain(ctx context.Context, err error, last *unstructured.Unstructured) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if last == nil {
		return fmt.Errorf("%w; it is not there", err)
	}
	status, _ := last.Object["status"].(map[string]any)
	return fmt.Errorf("%w; its last status is %v", err, status)
}
