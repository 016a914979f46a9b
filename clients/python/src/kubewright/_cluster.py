"""The context manager: a cluster that is there as long as its block."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from kubewright._api import DEFINITIONS, JSON, Api, established, read_definitions
from kubewright._errors import ApiError, ClusterError
from kubewright._process import Log, Process, find_program

if TYPE_CHECKING:
    import kubernetes.client

# How long the controllers may take for what every namespace gets.
PATIENCE = 10.0


class _Running(NamedTuple):
    process: Process
    kubeconfig: Path
    api: Api


class Cluster:
    """A Kubernetes cluster of its own, started by `with` or `start()`.

    `program`: the kubewright to run; else what the environment variable KUBEWRIGHT names, else the one that was
        installed with this package, else `kubewright` on the PATH.
    `controllers`: the built-in controllers to run: "all", "none" (an API server alone), or names with commas.
    `kubernetes_version`: the version of Kubernetes to serve, such as "1.37"; else the program's default.
    `crds`: CustomResourceDefinitions, each a file, a folder of files, or a dictionary; they are Established when the
        cluster is started.
    `objects`: other objects to apply after them, as dictionaries.
    `data_dir`: keeps all objects in this folder and goes on with what is there; else everything is in memory.
    `args`: further flags of `kubewright cluster`. `env`: variables for the program (KUBEWRIGHT_LOG=debug makes it
        talk).
    `log`: a text file that takes what the program writes to its standard error.
    `start_timeout`, `stop_timeout`: seconds.
    """

    def __init__(
        self,
        *,
        program: str | os.PathLike[str] | None = None,
        controllers: str = "all",
        kubernetes_version: str | None = None,
        crds: Iterable[str | os.PathLike[str] | Mapping[str, Any]] = (),
        objects: Iterable[Mapping[str, Any]] = (),
        data_dir: str | os.PathLike[str] | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        log: Log | None = None,
        start_timeout: float = 30.0,
        stop_timeout: float = 10.0,
    ) -> None:
        self._program = program
        self._controllers = controllers
        self._crds = list(crds)
        self._objects = list(objects)
        self._arguments = ["cluster", "--output", "json", "--controllers", controllers]
        if kubernetes_version is not None:
            self._arguments += ["--kubernetes-version", kubernetes_version]
        if data_dir is not None:
            self._arguments += ["--data-dir", os.fspath(data_dir)]
        self._arguments += args
        self._environment = dict(env or {})
        self._log = log
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._running: _Running | None = None

    def start(self) -> Cluster:
        """Starts the cluster; it answers, and `crds` and `objects` are there, when this returns."""
        if self._running is not None:
            raise ClusterError("the cluster runs already; a second one is a second Cluster")
        process = Process(find_program(self._program), self._arguments, self._environment, self._log)
        try:
            kubeconfig = Path(process.ready(self._start_timeout)["kubeconfig"])
            api = Api(kubeconfig)
            self._install(api)
        except BaseException:
            # Why it did not start says more than how it ended.
            with contextlib.suppress(ClusterError):
                process.stop(self._stop_timeout)
            raise
        self._running = _Running(process, kubeconfig, api)
        return self

    def _install(self, api: Api) -> None:
        names = []
        for each in self._crds:
            if isinstance(each, Mapping):
                documents = [(json.dumps(each), JSON)]
            else:
                try:
                    documents = read_definitions(Path(each))
                except (OSError, ValueError, ClusterError) as why:
                    raise ClusterError(f"cannot read definitions of {os.fspath(each)}: {why}") from why
            names += [api.apply_definition(document, content_type) for document, content_type in documents]
        for name in names:
            api.wait_for(DEFINITIONS, name, established, self._start_timeout)
        for manifest in self._objects:
            api.apply(manifest)

    def stop(self) -> None:
        """Ends the cluster; its process is gone when this returns.

        Raises ClusterError when the process had ended before by itself, and when it had to be killed. To stop what does
        not run is no error.
        """
        if self._running is not None:
            running, self._running = self._running, None
            running.process.stop(self._stop_timeout)

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except ClusterError as why:
            if raised is None:
                raise
            # The block's own error stays the error; this may be its cause.
            if hasattr(raised, "add_note"):
                raised.add_note(str(why))

    def _must_run(self) -> _Running:
        if self._running is None:
            raise ClusterError("the cluster does not run: use it in a `with`, or call start() first")
        return self._running

    @property
    def kubeconfig(self) -> Path:
        """The path of the kubeconfig, of a user who may do everything (group system:masters). The file goes with the
        cluster.
        """
        return self._must_run().kubeconfig

    @property
    def address(self) -> str:
        """Where the API server listens: https://127.0.0.1 and a port."""
        return self._must_run().api.address

    @property
    def pid(self) -> int:
        """The number of the cluster's process."""
        return self._must_run().process.pid

    def api_client(self) -> kubernetes.client.ApiClient:
        """A new client of the official package `kubernetes`, for its API classes: `CoreV1Api(cluster.api_client())`."""
        try:
            import kubernetes.config
        except ImportError as why:
            raise ImportError("Cluster.api_client needs the package `kubernetes`: pip install kubernetes") from why
        return kubernetes.config.new_client_from_config(str(self.kubeconfig))

    @contextlib.contextmanager
    def as_default(self) -> Iterator[None]:
        """For a block, this is the cluster of code that asks for none: of KUBECONFIG and of `load_kube_config()`.

        For code under test that finds its cluster by itself, in this process or in one that it starts.
        """
        kubeconfig = str(self.kubeconfig)
        # The clients read the variable once, when they are imported.
        modules = [sys.modules.get(f"{package}.config.kube_config") for package in ("kubernetes", "kubernetes_asyncio")]
        constant = "KUBE_CONFIG_DEFAULT_LOCATION"
        patched = [(module, getattr(module, constant)) for module in modules if hasattr(module, constant)]
        before = os.environ.get("KUBECONFIG")
        os.environ["KUBECONFIG"] = kubeconfig
        for module, _ in patched:
            setattr(module, constant, kubeconfig)
        try:
            yield
        finally:
            for module, value in patched:
                setattr(module, constant, value)
            if before is None:
                os.environ.pop("KUBECONFIG", None)
            else:
                os.environ["KUBECONFIG"] = before

    @contextlib.contextmanager
    def namespace(self, prefix: str = "test") -> Iterator[str]:
        """A new namespace for a block: its name begins with `prefix`, made into a label; afterwards it is deleted,
        without waiting.

        When the controllers run, its service account "default" is there, so that pods are admitted at once.
        """
        api = self._must_run().api
        label = re.sub("[^a-z0-9]+", "-", prefix.lower())[:40].strip("-") or "test"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": f"{label}-"}}
        name = str(api.request("POST", "/api/v1/namespaces", json.dumps(body))["metadata"]["name"])
        try:
            if {"all", "serviceaccount"} & set(self._controllers.split(",")):
                api.wait_for(f"/api/v1/namespaces/{name}/serviceaccounts", "default", lambda _: True, PATIENCE)
            yield name
        finally:
            try:
                api.request("DELETE", f"/api/v1/namespaces/{name}")
            except OSError:
                # The cluster is gone, which stop() says.
                pass
            except ApiError as refused:
                if refused.code != 404:
                    raise

    def events(self, namespace: str) -> list[str]:
        """The Events of a namespace, a line each, for the log of a test that failed."""
        found = self._must_run().api.request("GET", f"/api/v1/namespaces/{namespace}/events", timeout=PATIENCE)["items"]
        return [
            f"{event.get('type')} {event['involvedObject'].get('kind')}/{event['involvedObject'].get('name')}: "
            f"{event.get('reason')}: {event.get('message')}"
            for event in found
        ]
