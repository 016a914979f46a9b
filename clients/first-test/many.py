#!/usr/bin/env python3
"""Starts control planes (an etcd and a kube-apiserver each) at the same moment, and says when all of them are ready and gone.

    kubewright assets --dir DIR; clients/first-test/many.py DIR [HOW MANY, default 50]

Each pair has its ports, keys and folder before the first is started, as envtest gives them.
"""

import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

assets, many = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50


def ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/readyz", context=ANYONE, timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


ANYONE = ssl._create_unverified_context()
with tempfile.TemporaryDirectory() as home:
    key, public = f"{home}/sa.key", f"{home}/sa.pub"
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key], check=True)
    subprocess.run(["openssl", "ec", "-in", key, "-pubout", "-out", public], check=True, capture_output=True)
    numbers = ports(3 * many)
    commands, servers = [], []
    for index in range(many):
        client, peer, secure = numbers[3 * index : 3 * index + 3]
        etcd = [f"--data-dir={home}/{index}/etcd", f"--listen-client-urls=http://127.0.0.1:{client}", "--unsafe-no-fsync"]
        etcd += [f"--advertise-client-urls=http://127.0.0.1:{client}", f"--listen-peer-urls=http://127.0.0.1:{peer}"]
        server = [f"--etcd-servers=http://127.0.0.1:{client}", f"--secure-port={secure}", "--bind-address=127.0.0.1"]
        server += [f"--cert-dir={home}/{index}/certificates", "--authorization-mode=RBAC"]
        server += ["--service-account-issuer=https://127.0.0.1", f"--service-account-key-file={public}"]
        server += [f"--service-account-signing-key-file={key}", "--disable-admission-plugins=ServiceAccount"]
        commands += [[assets / "etcd", *etcd], [assets / "kube-apiserver", *server]]
        servers.append(secure)
    begun = time.monotonic()
    running = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for command in commands]
    waiting = set(servers)
    while waiting and time.monotonic() - begun < 120:
        waiting -= {port for port in waiting if ready(port)}
    took = time.monotonic() - begun
    for process in running:
        process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    for process in running:
        process.wait(timeout=30)
    print(f"{many - len(waiting)} of {many} ready after {took:.2f} s, gone {time.monotonic() - begun:.2f} s after SIGTERM")
sys.exit(bool(waiting))
