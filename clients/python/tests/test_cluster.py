from __future__ import annotations

import io
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from kubewright import ApiError, Cluster, ClusterError

WIDGETS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
        "scope": "Namespaced",
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}},
        ],
    },
}
# The same as people write it, between other documents, and called differently.
GADGETS = """
kind: ConfigMap
apiVersion: v1
metadata: {name: not-a-definition}
---
# what the operator is about
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition # a comment
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  names: {kind: Gadget, listKind: GadgetList, plural: gadgets, singular: gadget}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
---
"""


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def listens(address: str) -> bool:
    host, _, port = address.removeprefix("https://").partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def eventually(what: str, holds: Callable[[], bool]) -> None:
    """Looks at a state that nobody tells us about."""
    end = time.monotonic() + 20
    tick = threading.Event()
    while not holds():
        assert time.monotonic() < end, f"it was never so: {what}"
        tick.wait(0.005)


def script(folder: Path, lines: str) -> Path:
    """A program that is not kubewright."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o700)
    return path


def test_the_version_is_chosen() -> None:
    with Cluster(controllers="none", kubernetes_version="1.37") as cluster:
        version = client.VersionApi(cluster.api_client()).get_code()
        assert version.git_version == "v1.37.2"
    with pytest.raises(ClusterError, match="Kubernetes 1.20 is not served; there are 1.36 and 1.37"):
        Cluster(kubernetes_version="1.20").start()


def test_the_block_leaves_nothing_behind() -> None:
    with Cluster() as cluster:
        kubeconfig, process, address = cluster.kubeconfig, cluster.pid, cluster.address
        assert address.startswith("https://127.0.0.1:") and listens(address) and runs(process)
        with pytest.raises(ClusterError, match="runs already"):
            cluster.start()
    assert not runs(process)
    assert not kubeconfig.parent.exists()
    cluster.stop()
    with pytest.raises(ClusterError, match=r"call start\(\) first"):
        _ = cluster.kubeconfig
    with cluster:
        assert cluster.kubeconfig.exists()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("/nowhere/kubewright", "the argument `program` names /nowhere/kubewright"),
        ("echo hello", "said 'hello' instead of being ready; is it kubewright?"),
        ("echo melting >&2; exit 7", "ended before it was ready (exit status 7)\n  melting"),
        ("echo waiting for the moon >&2; exec tail -f /dev/null", "not ready within 1 s\n  waiting for the moon"),
    ],
)
def test_another_program_is_told_in_words(tmp_path: Path, program: str, said: str) -> None:
    path = program if program.startswith("/") else script(tmp_path, program)
    with pytest.raises(ClusterError) as raised:
        Cluster(program=path, start_timeout=1 if "moon" in said else 30).start()
    assert said in str(raised.value)


def test_the_environment_names_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBEWRIGHT", "/nowhere/kubewright")
    with pytest.raises(ClusterError, match="the environment variable KUBEWRIGHT names /nowhere/kubewright"):
        Cluster().start()
    monkeypatch.delenv("KUBEWRIGHT")
    monkeypatch.setattr("kubewright._process._packaged", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="no program `kubewright` on the PATH: install it, or let the"):
        Cluster().start()


def test_errors_of_the_program_are_told_in_words() -> None:
    with pytest.raises(ClusterError, match='there is no controller "nonsense"'):
        Cluster(controllers="nonsense").start()
    with Cluster() as cluster:
        address = cluster.address.removeprefix("https://")
        with pytest.raises(ClusterError) as raised:
            Cluster(args=["--listen", address]).start()
    said = str(raised.value)
    assert f"\n  cannot listen on {address}: " in said and "--listen 127.0.0.1:0 takes a free one)" in said


@pytest.mark.parametrize(
    ("crds", "said"),
    [
        (["/nowhere/crds"], "cannot read definitions of /nowhere/crds: "),
        (["."], "there is no CustomResourceDefinition in ."),
        ([{**WIDGETS, "metadata": {"name": "wrong"}}], 'must be spec.names.plural+"."+spec.group'),
    ],
)
def test_definitions_that_cannot_be_are_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crds: list[Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ClusterError) as raised:
        Cluster(crds=crds).start()
    assert said in str(raised.value)


def test_a_cluster_that_does_not_end_is_killed(tmp_path: Path, cluster: Cluster) -> None:
    # What the shell ignores, the program that it becomes ignores.
    ready = f'{{"event":"ready","kubeconfig":"{cluster.kubeconfig}"}}'
    stubborn = Cluster(
        program=script(tmp_path, f"trap '' TERM\necho '{ready}'\nexec tail -f /dev/null"), stop_timeout=0.1
    )
    stubborn.start()
    with pytest.raises(ClusterError, match=r"did not stop within 0\.1 s and was killed"):
        stubborn.stop()


def kill(cluster: Cluster) -> None:
    process = cluster.pid
    # What a killed program leaves.
    cluster.kubeconfig.unlink()
    cluster.kubeconfig.parent.rmdir()
    os.kill(process, signal.SIGKILL)
    eventually("the cluster is gone", lambda: not listens(cluster.address))


def test_a_cluster_that_ended_by_itself_is_an_error() -> None:
    with pytest.raises(ClusterError, match=r"ended before it was stopped \(signal 9\)"), Cluster() as cluster:
        kill(cluster)


def test_the_error_of_the_block_stays_the_error() -> None:
    with pytest.raises(KeyError) as raised, Cluster() as cluster:
        kill(cluster)
        raise KeyError("the block's")
    if sys.version_info >= (3, 11):
        assert any("ended before it was stopped" in note for note in raised.value.__notes__)


@pytest.mark.parametrize("how", ["exit", "raise", "kill -9", "Ctrl-C"])
def test_the_cluster_ends_with_its_owner(how: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("owner.py")), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert owner.stdin is not None and owner.stdout is not None
        kubeconfig = Path(owner.stdout.readline().strip())
        address = next(line for line in kubeconfig.read_text().splitlines() if "server:" in line).split()[-1]
        assert listens(address)
        if how == "kill -9":
            owner.kill()
        elif how == "Ctrl-C":
            # What a terminal does: to the whole group of the foreground.
            os.killpg(owner.pid, signal.SIGINT)
        else:
            owner.stdin.write("\n")
            owner.stdin.flush()
        assert owner.wait(20) != 0
    finally:
        owner.kill()
        owner.communicate()
    eventually("the cluster ended with its owner", lambda: not listens(address))
    eventually("its folder is gone", lambda: not kubeconfig.parent.exists())


def test_a_cluster_outlives_the_thread_that_started_it() -> None:
    started: queue.SimpleQueue[Cluster] = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: started.put(Cluster().start()))
    thread.start()
    thread.join()
    cluster = started.get_nowait()
    try:
        assert client.VersionApi(cluster.api_client()).get_code().major == "1"
    finally:
        cluster.stop()


def test_definitions_and_objects_are_there(tmp_path: Path) -> None:
    (tmp_path / "gadgets.yaml").write_text(GADGETS)
    (tmp_path / "readme.txt").write_text("kind: CustomResourceDefinition")
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "shop"}},
        {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "b"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "key-"}},
    ]
    with Cluster(crds=[WIDGETS, tmp_path], objects=objects, controllers="none") as cluster:
        api = cluster.api_client()
        custom, core = client.CustomObjectsApi(api), client.CoreV1Api(api)
        assert custom.get_namespaced_custom_object("example.com", "v1", "shop", "widgets", "a")["kind"] == "Widget"
        assert custom.get_cluster_custom_object("example.com", "v1", "gadgets", "b")["kind"] == "Gadget"
        assert core.read_namespaced_config_map("c", "default").metadata.name == "c"
        assert [each.metadata.name[:4] for each in core.list_namespaced_secret("default").items] == ["key-"]


def test_objects_of_other_kinds_are_refused() -> None:
    with pytest.raises(ClusterError, match="does not serve the kind Gizmo in v1"):
        Cluster(objects=[{"apiVersion": "v1", "kind": "Gizmo", "metadata": {"name": "a"}}]).start()
    with pytest.raises(ApiError, match=r"spec\.containers: Required value"):
        Cluster(objects=[{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}]).start()


def test_a_data_folder_is_gone_on_with(tmp_path: Path) -> None:
    folder, definition = tmp_path / "data", tmp_path / "crd.yaml"
    definition.write_text(GADGETS)
    identities = []
    for attempt in range(2):
        with Cluster(data_dir=folder, crds=[definition, WIDGETS]) as cluster:
            core = client.CoreV1Api(cluster.api_client())
            if attempt == 0:
                core.create_namespaced_config_map("default", {"metadata": {"name": "kept"}})
            identities.append(core.read_namespaced_config_map("kept", "default").metadata.uid)
    assert identities[0] == identities[1]


@pytest.mark.parametrize(("controllers", "account"), [("all", "default"), ("none", None)])
def test_controllers_are_chosen(controllers: str, account: str | None) -> None:
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    with Cluster(controllers=controllers) as cluster, cluster.namespace() as namespace:
        made = client.CoreV1Api(cluster.api_client()).create_namespaced_pod(namespace, pod)
        assert made.spec.service_account_name == account


def test_the_default_is_this_cluster_for_a_block(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")
    with cluster.as_default():
        assert os.environ["KUBECONFIG"] == str(cluster.kubeconfig)
        config.load_kube_config()
        assert client.Configuration.get_default_copy().host == cluster.address
    assert os.environ["KUBECONFIG"] == "/nowhere/kubeconfig"
    with pytest.raises(config.ConfigException):
        config.load_kube_config()


def test_a_namespace_goes_with_its_block(cluster: Cluster) -> None:
    core = client.CoreV1Api(cluster.api_client())

    def gone(name: str) -> bool:
        try:
            core.read_namespace(name)
        except ApiException as refused:
            return bool(refused.status == 404)
        return False

    with cluster.namespace("test_It[a Ünicode name] that is longer than names of namespaces are") as name:
        assert name.startswith("test-it-a-nicode-name-that-is-longer-tha-")
        assert core.read_namespaced_service_account("default", name).metadata.name == "default"
        with cluster.namespace("[]") as another:
            assert another.startswith("test-")
    eventually(f"the namespace {name} is gone", lambda: gone(name))
    # One that the block deletes itself is no error.
    with cluster.namespace() as name:
        core.delete_namespace(name)
        eventually(f"the namespace {name} is gone", lambda: gone(name))


def test_the_log_is_the_callers() -> None:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    class Log:
        def write(self, text: str) -> None:
            lines.put(text)

    with Cluster(env={"KUBEWRIGHT_LOG": "debug"}, log=Log()):
        assert lines.get(timeout=20)


def test_a_closed_log_does_not_stop_the_cluster() -> None:
    log = io.StringIO()
    log.close()
    with Cluster(env={"KUBEWRIGHT_LOG": "debug"}, log=log) as cluster:
        assert client.VersionApi(cluster.api_client()).get_code().major == "1"
