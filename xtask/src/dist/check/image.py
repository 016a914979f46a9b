"""Runs the image's entry point in the image's file system, as an engine for containers would, in a network of its own.

Arguments: the archive, and an empty folder. It prints what was tried.
"""

import fcntl
import hashlib
import http.client
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from kubewright._api import Api

archive, folder = sys.argv[1], Path(sys.argv[2])
layout, root = folder / "layout", folder / "root"
with tarfile.open(archive) as tar:
    tar.extractall(layout, filter="data")


def blob(descriptor):
    path = layout / "blobs" / descriptor["digest"].replace(":", "/")
    data = path.read_bytes()
    assert hashlib.sha256(data).hexdigest() == path.name and len(data) == descriptor["size"], path
    return path


manifest = json.loads(blob(json.loads((layout / "index.json").read_text())["manifests"][0]).read_text())
image = json.loads(blob(manifest["config"]).read_text())["config"]
for layer in manifest["layers"]:
    with tarfile.open(blob(layer)) as tar:
        # Owners are part of the image; without the rights for them it is entered as the one user that there is.
        tar.extractall(root, numeric_owner=True, filter="fully_trusted")

# The loopback interface of a new network is down: SIOCSIFFLAGS, IFF_UP and IFF_RUNNING.
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, 0x8914, struct.pack("16sh22x", b"lo", 0x41))

user, group = map(int, image["User"].split(":"))
# A user namespace that knows one user alone has no other to become.
alone = int(Path("/proc/self/uid_map").read_text().split()[2]) == 1


def enter():
    os.chroot(root)
    os.chdir("/" if alone else image["WorkingDir"])
    if not alone:
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)


environment = dict(variable.split("=", 1) for variable in image["Env"])
program = subprocess.Popen(image["Entrypoint"], env=environment, stdout=subprocess.DEVNULL, preexec_fn=enter)
try:
    kubeconfig = root / image["Entrypoint"][-1].lstrip("/")
    while not kubeconfig.exists():
        assert program.poll() is None, f"the cluster ended with {program.returncode}"
        time.sleep(0.01)
    assert kubeconfig.stat().st_mode & 0o077 == 0, "others may read the kubeconfig"
    # As a client would that has copied it out of the container.
    api = Api(kubeconfig)
    assert api.address == "https://127.0.0.1:6443", api.address
    assert api.request("GET", "/api/v1/namespaces/default")["kind"] == "Namespace"
    # A stranger gets nothing, and nobody gets anything without TLS.
    stranger = http.client.HTTPSConnection("127.0.0.1", 6443, context=ssl._create_unverified_context())
    stranger.request("GET", "/api/v1/namespaces")
    status = stranger.getresponse().status
    assert status in (401, 403), status
    try:
        plain = http.client.HTTPConnection("127.0.0.1", 6443)
        plain.request("GET", "/version")
        assert plain.getresponse().status == 400
    except (http.client.HTTPException, OSError):
        pass
finally:
    program.send_signal(signal.SIGTERM)
    code = program.wait(timeout=10)
assert code == 0, code
print(f"entered as user {'root of a namespace' if alone else user}; a client got in with the kubeconfig, a stranger did not")
