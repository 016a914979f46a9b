#!/usr/bin/env python3
"""Every scenario of the examples, with the operator killed after each of its writes.

    examples/killed.py PROGRAM [NAME ...]      the test program, as `cargo test --no-run` names it; parts of names

A scenario is played again and again: the operator is killed after its first write, after its second one, and so on,
until it ends before its time comes. The write is carried out and its answer lost; a new operator begins with the
cluster as it finds it. The scenario promises what it always promises. A failure is shown, and the exit status is 1.
An event may be lost with the operator that was about to tell it: no scenario counts on one then.
"""

import os
import subprocess
import sys
import time


def played(program, name, dies_after):
    environment = {**os.environ, "KUBEWRIGHT_DIES_AFTER": str(dies_after)}
    command = [program, "--exact", name, "--nocapture"]
    return subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def main(program, *parts):
    listed = subprocess.run([program, "--list"], text=True, capture_output=True, check=True).stdout
    names = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
    failed = []
    for name in names:
        # Those kill their operators themselves.
        if "_death_" in name or parts and not any(part in name for part in parts):
            continue
        began = time.monotonic()
        for dies_after in range(1, 1000):
            done = played(program, name, dies_after)
            if "the operator was killed:" not in done.stdout:
                print(f"{name}: no operator of it can be killed")
                break
            if done.returncode:
                failed.append(f"{name}, killed after write {dies_after}")
                print(f"FAILED {failed[-1]}\n{done.stdout[-3000:]}", flush=True)
            if "the operator was killed: true" not in done.stdout:
                took = time.monotonic() - began
                print(f"{name}: killed after each of {dies_after - 1} writes, {took:.0f} s", flush=True)
                break
    print(f"failed: {failed or 'nothing'}")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    sys.exit(main(*sys.argv[1:]))
