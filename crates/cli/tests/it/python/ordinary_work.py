"""The ordinary work of the official Python client (package `kubernetes`), against whatever KUBECONFIG names.

Typed and dynamic APIs, selectors, watches, every kind of patch, custom resources, errors. Fails with a traceback.
"""
import threading

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.exceptions import ApiException

config.load_kube_config()
core, apps, extensions = client.CoreV1Api(), client.AppsV1Api(), client.ApiextensionsV1Api()
NAMESPACE = "python"


def refused(code, reason, call, *arguments, **named):
    """The call is refused with this code and reason."""
    try:
        call(*arguments, **named)
    except ApiException as error:
        assert error.status == code, (error.status, error.body)
        assert f'"reason":"{reason}"' in error.body.replace(" ", ""), error.body
        return
    raise AssertionError(f"{call.__name__} was not refused")


def wait_for(listing, is_there, **named):
    """The first watch event for which it holds."""
    w = watch.Watch()
    for event in w.stream(listing, timeout_seconds=20, **named):
        if is_there(event):
            w.stop()
            return event
    raise AssertionError("nothing of the kind within 20 seconds")


def config_maps():
    made = core.create_namespaced_config_map(
        NAMESPACE, {"metadata": {"name": "one", "labels": {"app": "a"}}, "data": {"k": "v"}})
    assert made.metadata.uid and made.metadata.creation_timestamp.tzinfo
    refused(409, "AlreadyExists", core.create_namespaced_config_map, NAMESPACE, {"metadata": {"name": "one"}})
    refused(404, "NotFound", core.read_namespaced_config_map, "none", NAMESPACE)
    refused(422, "Invalid", core.create_namespaced_config_map, NAMESPACE, {"metadata": {"name": "UPPER"}})
    made.data["k"] = "w"
    replaced = core.replace_namespaced_config_map("one", NAMESPACE, made)
    assert replaced.data == {"k": "w"}
    refused(409, "Conflict", core.replace_namespaced_config_map, "one", NAMESPACE, made)
    patched = core.patch_namespaced_config_map("one", NAMESPACE, {"data": {"l": "x", "k": None}})
    assert patched.data == {"l": "x"}, patched.data
    patched = core.patch_namespaced_config_map("one", NAMESPACE, [{"op": "add", "path": "/data/m", "value": "y"}])
    assert patched.data == {"l": "x", "m": "y"}, patched.data
    for index in range(5):
        core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": f"page-{index}", "labels": {"app": "b"}}})
    chosen = core.list_namespaced_config_map(NAMESPACE, label_selector="app in (b),app!=a")
    assert len(chosen.items) == 5
    page = core.list_namespaced_config_map(NAMESPACE, label_selector="app=b", limit=2)
    assert len(page.items) == 2 and page.metadata._continue
    rest = core.list_namespaced_config_map(NAMESPACE, label_selector="app=b", limit=9, _continue=page.metadata._continue)
    assert len(rest.items) == 3
    named = core.list_namespaced_config_map(NAMESPACE, field_selector="metadata.name=one")
    assert [item.metadata.name for item in named.items] == ["one"]
    dry = core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "dry"}}, dry_run="All")
    assert dry.metadata.uid
    refused(404, "NotFound", core.read_namespaced_config_map, "dry", NAMESPACE)
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="app=b")
    assert not core.list_namespaced_config_map(NAMESPACE, label_selector="app=b").items


def watching():
    seen, ready = [], threading.Event()
    version = core.list_namespaced_secret(NAMESPACE).metadata.resource_version

    def follow():
        ready.set()
        for event in watch.Watch().stream(core.list_namespaced_secret, NAMESPACE, resource_version=version, timeout_seconds=20):
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                return
    follower = threading.Thread(target=follow)
    follower.start()
    ready.wait()
    core.create_namespaced_secret(NAMESPACE, {"metadata": {"name": "s"}, "stringData": {"password": "p"}})
    core.patch_namespaced_secret("s", NAMESPACE, {"metadata": {"labels": {"a": "b"}}})
    core.delete_namespaced_secret("s", NAMESPACE)
    follower.join(30)
    assert seen == [("ADDED", "s"), ("MODIFIED", "s"), ("DELETED", "s")], seen
    try:
        for event in watch.Watch().stream(core.list_namespaced_secret, NAMESPACE, resource_version="1", timeout_seconds=1):
            assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
    except ApiException as error:
        assert error.status == 410, error


def workloads():
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx:1.27"}]}}
    made = apps.create_namespaced_deployment(NAMESPACE, {
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}})
    assert made.spec.strategy.rolling_update.max_surge == "25%"
    wait_for(apps.list_namespaced_deployment, lambda event: event["object"].status.available_replicas == 2, namespace=NAMESPACE)
    pods = core.list_namespaced_pod(NAMESPACE, label_selector="app=web").items
    assert len(pods) == 2 and all(pod.status.phase == "Running" for pod in pods)
    scale = apps.read_namespaced_deployment_scale("web", NAMESPACE)
    scale.spec.replicas = 1
    apps.replace_namespaced_deployment_scale("web", NAMESPACE, scale)
    wait_for(apps.list_namespaced_deployment, lambda event: event["object"].status.replicas == 1, namespace=NAMESPACE)
    strategic = apps.patch_namespaced_deployment("web", NAMESPACE, {
        "spec": {"template": {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]}}}})
    [container] = strategic.spec.template.spec.containers
    assert container.image == "nginx:1.27" and container.env[0].name == "A"
    refused(422, "Invalid", apps.patch_namespaced_deployment, "web", NAMESPACE, {"spec": {"replicas": -1}})
    apps.delete_namespaced_deployment("web", NAMESPACE, propagation_policy="Foreground")
    core.create_namespaced_service(NAMESPACE, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}})
    assert core.read_namespaced_service("web", NAMESPACE).spec.cluster_ip.count(".") == 3


def custom_resources():
    schema = {"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1}, "colour": {"type": "string", "default": "red"}}},
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}}
    extensions.create_custom_resource_definition({
        "metadata": {"name": "boats.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
                 "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                               "schema": {"openAPIV3Schema": schema}}]}})
    wait_for(extensions.list_custom_resource_definition, lambda event: any(
        condition.type == "Established" and condition.status == "True"
        for condition in event["object"].status.conditions or []), field_selector="metadata.name=boats.example.com")
    custom = client.CustomObjectsApi()
    where = ("example.com", "v1", NAMESPACE, "boats")
    boat = custom.create_namespaced_custom_object(*where, {
        "apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "anna"}, "spec": {"size": 3}})
    assert boat["spec"] == {"size": 3, "colour": "red"}
    refused(422, "Invalid", custom.create_namespaced_custom_object, *where, {
        "apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "none"}, "spec": {"size": 0}})
    custom.patch_namespaced_custom_object_status(*where, "anna", {"status": {"ready": True}})
    boat = custom.get_namespaced_custom_object(*where, "anna")
    assert boat["status"] == {"ready": True} and boat["metadata"]["generation"] == 1

    boats = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="example.com/v1", kind="Boat")
    applied = boats.server_side_apply(namespace=NAMESPACE, name="anna", field_manager="python", force_conflicts=True, body={
        "apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "anna"}, "spec": {"size": 5}})
    assert applied.spec.size == 5
    managers = {entry.manager for entry in applied.metadata.managedFields}
    assert "python" in managers, managers
    assert [item.metadata.name for item in boats.get(namespace=NAMESPACE).items] == ["anna"]
    boats.delete(name="anna", namespace=NAMESPACE)
    extensions.delete_custom_resource_definition("boats.example.com")


def everything_else():
    utils.create_from_dict(client.ApiClient(), {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "made", "namespace": NAMESPACE},
                                                "spec": {"ports": [{"port": 1}]}})
    assert client.VersionApi().get_code().git_version.startswith("v1.")
    assert {group.name for group in client.ApisApi().get_api_versions().groups} >= {"apps", "batch", "rbac.authorization.k8s.io"}
    review = client.AuthorizationV1Api().create_self_subject_access_review(
        {"spec": {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}})
    assert review.status.allowed
    nobody = client.Configuration.get_default_copy()
    nobody.cert_file = nobody.key_file = None
    nobody.api_key = {"authorization": "Bearer none"}
    refused(401, "Unauthorized", client.CoreV1Api(client.ApiClient(nobody)).list_node)


core.create_namespace({"metadata": {"name": NAMESPACE}})
for part in (config_maps, watching, workloads, custom_resources, everything_else):
    part()
    print(part.__name__.replace("_", " "), "ok", flush=True)
core.delete_namespace(NAMESPACE)
wait_for(core.list_namespace, lambda event: event["type"] == "DELETED" and event["object"].metadata.name == NAMESPACE)
print("gone")
