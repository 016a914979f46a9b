"""The fixtures, from outside: pytest runs on projects that use them."""

from __future__ import annotations

import pytest

TWO_TESTS = """
    def test_first(cluster, namespace, record):
        record(cluster.address, namespace)

    def test_second(cluster, namespace, record):
        record(cluster.address, namespace)
"""

CONFTEST = """
    import pytest

    seen = []

    @pytest.fixture
    def record():
        return lambda *values: seen.append(values)

    def pytest_terminal_summary(terminalreporter):
        addresses, namespaces = zip(*seen)
        terminalreporter.write_line(f"clusters: {len(set(addresses))}, namespaces: {len(set(namespaces))}")
"""


@pytest.mark.parametrize(
    ("arguments", "ini", "clusters"),
    [
        ([], "", 1),
        (["--kubewright-scope", "function"], "", 2),
        ([], "kubewright_scope = function", 2),
        (["--kubewright-scope", "session"], "kubewright_scope = function", 1),
    ],
)
def test_the_scope_is_chosen(pytester: pytest.Pytester, arguments: list[str], ini: str, clusters: int) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makeini(f"[pytest]\n{ini}\n")
    pytester.makepyfile(TWO_TESTS)
    result = pytester.runpytest_subprocess(*arguments)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([f"clusters: {clusters}, namespaces: 2"])


def test_a_scope_that_there_is_not_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkubewright_scope = galaxy\n")
    pytester.makepyfile(TWO_TESTS)
    result = pytester.runpytest_subprocess()
    assert result.ret != 0
    assert "kubewright_scope is 'galaxy', and not one of session, " in result.stdout.str() + result.stderr.str()


def test_own_cluster_is_another_one(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_it(cluster, own_cluster):
            assert cluster.address != own_cluster.address
    """)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_options_are_the_projects(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest

        @pytest.fixture(scope="session")
        def cluster_options():
            return {"controllers": "nonsense"}
    """)
    pytester.makepyfile("def test_it(cluster): pass")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['*there is no controller "nonsense"*'])


def test_a_failed_test_tells_of_its_events(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from kubernetes.client import CoreV1Api

        @pytest.mark.parametrize("good", [True, False])
        def test_it(cluster, namespace, good):
            CoreV1Api(cluster.api_client()).create_namespaced_event(namespace, {
                "metadata": {"name": "a"},
                "involvedObject": {"kind": "Pod", "name": "a", "namespace": namespace},
                "type": "Warning", "reason": "Melted", "message": "good: " + str(good),
            })
            assert good
    """)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*Events of the namespace test-it-false-*", "Warning Pod/a: Melted: good: False"])
    result.stdout.no_fnmatch_line("*good: True")
