"""Real servers for pods of Databases that nobody runs.

A cluster whose nodes are simulated gives the pod of a Database an address and runs nothing behind it. Here the address
becomes one of this machine, and the server listens there: started as the pod says, by the script that stands for its
image where our own cluster runs pods as processes. So operators and applications reach it as they would in a cluster.
Wanted: root (for the address), and PostgreSQL or MariaDB.
"""

import base64
import glob
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "crates/nodes/src/processes/programs"


class Server:
    """The server of a pod. `secret` gives the data of a Secret by its name."""

    def __init__(self, pod, secret):
        container = pod["spec"]["containers"][0]
        self.address = pod["status"]["podIP"]
        self.port = container["ports"][0]["containerPort"]
        image = container["image"].split(":")[0]
        user = "postgres" if image == "postgres" else "nobody"
        # PostgreSQL waits for its clients to go unless it is told so.
        self.end = signal.SIGINT if image == "postgres" else signal.SIGTERM
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{image}-"))
        for name in ("data", "run", "root"):
            (folder / name).mkdir()
            shutil.chown(folder / name, user)
        folder.chmod(0o755)
        subprocess.run(["ip", "address", "add", f"{self.address}/32", "dev", "lo"], check=True)
        programs = glob.glob("/usr/lib/postgresql/*/bin")
        environment = {
            "PATH": ":".join([*programs, os.environ["PATH"], "/usr/sbin"]),
            "KUBEWRIGHT_POD_IP": self.address,
            "KUBEWRIGHT_RUN": str(folder / "run"),
            "KUBEWRIGHT_ROOT": str(folder / "root"),
            "DATADIR": str(folder / "data"),
        }
        for each in container["env"]:
            where, value = each.get("valueFrom", {}).get("secretKeyRef"), each.get("value", "")
            if where:
                value = base64.b64decode(secret(where["name"])[where["key"]]).decode()
            environment[each["name"]] = value
        # Paths of the image are paths of the folder here.
        environment["PGDATA"] = str(folder / "data")
        who = pwd.getpwnam(user)
        script = (PROGRAMS / ("postgres.sh" if image == "postgres" else "mariadb.sh")).read_text()
        self.log = folder / "log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", script, image],
                env=environment,
                cwd=folder,
                user=who.pw_uid,
                group=who.pw_gid,
                stdout=log,
                stderr=log,
            )
        self.listens()
        print(f"{pod['metadata']['name']}: {image} listens on {self.address}:{self.port}")

    def listens(self):
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            try:
                return socket.create_connection((self.address, self.port), 1).close()
            except OSError:
                time.sleep(0.1)
        self.stop()
        raise SystemExit(f"the server does not listen:\n{self.log.read_text()}")

    def down(self):
        self.process.send_signal(self.end)
        self.process.wait(30)

    def stop(self):
        if self.process.poll() is None:
            self.down()
        subprocess.run(["ip", "address", "del", f"{self.address}/32", "dev", "lo"], check=True)
