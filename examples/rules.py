#!/usr/bin/env python3
"""Whether an example's tests need every rule of the role that was generated for it.

    examples/rules.py FOLDER PROGRAM ...      the example; its test programs, as `cargo test --no-run` names them

The role is taken with each of its rules left out, and the programs are run under what remains: one of them must fail.
A rule that none of them misses is named, and the exit status is 1. Rules for KIND/finalizers are left alone: only the
admission plugin OwnerReferencesPermissionEnforcement asks for them, which the tests' API server does not have.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# A rule of the generated role begins so.
RULE = "- apiGroups:\n"


def fails(folder, program):
    # Tests that wait for what is not allowed wait for long: all at once, and one failure is enough.
    environment = {**os.environ, "CARGO_MANIFEST_DIR": str(folder), "RUST_TEST_THREADS": "16"}
    quiet = {"stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([program], env=environment, cwd=folder, stdout=subprocess.PIPE, **quiet) as run:
        for line in run.stdout:
            if line.rstrip().endswith(" ... FAILED"):
                run.kill()
                return True
    return run.returncode != 0


def one_fails(folder, programs):
    return any(fails(folder, program) for program in programs)


def main(folder, *programs):
    with tempfile.TemporaryDirectory() as place:
        copy = pathlib.Path(place) / "example"
        shutil.copytree(pathlib.Path(folder) / "config", copy / "config")
        role = copy / "config/rbac/role.yaml"
        head, *rules = role.read_text().split(RULE)
        if one_fails(copy, programs):
            raise SystemExit("the tests fail under the whole role already")
        missed = []
        for index, rule in enumerate(rules):
            words = " ".join(rule.split())
            if "/finalizers" in rule:
                print(f"NOT TRIED: {words}", flush=True)
                continue
            rest = rules[:index] + rules[index + 1 :]
            role.write_text(RULE.join([head, *rest]))
            needed = one_fails(copy, programs)
            print(f"{'needed' if needed else 'NOT NEEDED'}: {words}", flush=True)
            if not needed:
                missed.append(rule)
    return 1 if missed else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    sys.exit(main(*sys.argv[1:]))
