"""The README's programs, each run as its reader would run it: a block that begins with a file's name is that file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def files() -> dict[str, str]:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    found = {}
    for language, text in blocks:
        if language != "console":
            name = re.match(r"# (\S+)\n", text)
            assert name is not None, f"a block of {language} does not say which file it is"
            found[name[1]] = text
    return found


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    for name, text in files().items():
        path = pytester.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return pytester


def test_the_tests_pass(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("-v", timeout=120)
    result.assert_outcomes(passed=2)


def test_the_kopf_test_fails_without_its_handler(project: pytest.Pytester) -> None:
    operator = project.path / "widgets.py"
    operator.write_text(operator.read_text().replace("* 4", "* 5"))
    test = project.path / "test_operator.py"
    test.write_text(test.read_text().replace("timeout_seconds=30", "timeout_seconds=1"))
    result = project.runpytest_subprocess("test_operator.py", timeout=120)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the operator did not set the status*"])


def test_the_script_runs(project: pytest.Pytester) -> None:
    result = project.runpython(Path("versions.py"))
    assert result.ret == 0
    result.stdout.fnmatch_lines(["Kubernetes 1.* at https://127.0.0.1:*, kubeconfig /*", "a namespace: shop-*"])
