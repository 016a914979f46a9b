"""What the package does for pytest: a cluster for the session, a namespace for a test.

A project says in a fixture `cluster_options` what its cluster is made with, and in the option `kubewright_scope` how
long it lives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kubewright import Cluster, ClusterError

SCOPES = ("session", "package", "module", "class", "function")


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "how long the cluster of the fixture `cluster` lives: " + ", ".join(SCOPES)
    parser.getgroup("kubewright").addoption("--kubewright-scope", choices=SCOPES, help=about)
    parser.addini("kubewright_scope", about, default="session")


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    scope = config.getoption("kubewright_scope") or config.getini("kubewright_scope")
    if scope not in SCOPES:
        raise pytest.UsageError(f"kubewright_scope is {scope!r}, and not one of {', '.join(SCOPES)}")
    return scope


@pytest.fixture(scope="session")
def cluster_options() -> Mapping[str, Any]:
    """Arguments of `Cluster` for the fixtures `cluster` and `own_cluster`; a project overrides it."""
    return {}


@pytest.fixture(scope=_scope)
def cluster(cluster_options: Mapping[str, Any]) -> Iterator[Cluster]:
    """A running cluster, by default one for the whole session."""
    with Cluster(**cluster_options) as running:
        yield running


@pytest.fixture
def own_cluster(cluster_options: Mapping[str, Any]) -> Iterator[Cluster]:
    """A running cluster for one test, which nobody else has seen."""
    with Cluster(**cluster_options) as running:
        yield running


@pytest.fixture
def namespace(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    """A namespace of `cluster` for one test, called after it. When the test fails, its report has the Events of the
    namespace.
    """
    with cluster.namespace(request.node.name) as name:
        yield name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    used: Mapping[str, Any] = getattr(item, "funcargs", {})
    running, name = used.get("cluster"), used.get("namespace")
    if report.when == "call" and report.failed and isinstance(running, Cluster) and isinstance(name, str):
        try:
            lines = running.events(name)
        except (ClusterError, OSError) as why:
            lines = [f"cannot be listed: {why}"]
        report.sections.append((f"Events of the namespace {name}", "\n".join(lines) or "none"))
    return report
