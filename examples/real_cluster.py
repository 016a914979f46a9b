"""The cluster of `real.py`: kubectl, waits for states, and operators that run on this machine under their own roles."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))
MISSED = []
SOON = float(os.environ.get("SOON", "60"))
KUBECONFIG = sys.argv[1] if len(sys.argv) > 1 else ""


def kubectl(*arguments, given=None, fails=False):
    """What kubectl says; of a command that is to fail, why it did."""
    command = ["kubectl", "--kubeconfig", KUBECONFIG, *arguments]
    done = subprocess.run(command, input=given, text=True, capture_output=True)
    if (done.returncode != 0) != fails:
        raise SystemExit(f"{' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stderr.strip() if fails else done.stdout


def documents(text):
    """The JSON documents that follow one another in a text."""
    found, at = [], 0
    while at < len(text.rstrip()):
        document, at = json.JSONDecoder().raw_decode(text, at)
        found += document["items"] if document["kind"] == "List" else [document]
        at += len(text[at:]) - len(text[at:].lstrip())
    return found


def get(*arguments):
    return json.loads(kubectl("get", *arguments, "-o", "json"))


def apply(*objects):
    return kubectl(
        "apply",
        "--server-side",
        "--force-conflicts",
        "-f",
        "-",
        given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}),
    )


def refused(*objects):
    return kubectl(
        "create", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}), fails=True
    )


def until(what, ask):
    """Waits for a state; what it was is said."""
    end, seen = time.monotonic() + SOON, None
    while time.monotonic() < end:
        done = subprocess.run(
            ["kubectl", "--kubeconfig", KUBECONFIG, "get", *ask[0], "-o", "json"], text=True, capture_output=True
        )
        seen = json.loads(done.stdout) if done.returncode == 0 else None
        if seen is not None and ask[1](seen):
            print(f"  {what}: yes")
            return seen
        time.sleep(0.1)
    print(f"  {what}: NO; last seen {json.dumps(seen)[:1500]}")
    MISSED.append(what)
    return seen


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Operator:
    def __init__(self, name):
        self.name, self.folder = name, pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-"))
        self.namespace, self.account = f"{name}-system", f"{name}-controller-manager"
        self.port, self.health = free_port(), free_port()
        self.apply_configuration()
        self.start()

    def apply_configuration(self):
        config = self.folder / "config"
        shutil.copytree(HERE / self.name / "config", config)
        whole = config / "default/kustomization.yaml"
        text = (
            whole.read_text()
            .replace("#- ../certificates", "- ../certificates")
            .replace("\n- ../certmanager", "\n#- ../certmanager")
        )
        whole.write_text(text)
        rendered = kubectl("kustomize", str(config / "default"))
        objects = documents(
            kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-", given=rendered)
        )
        for o in objects:
            if o["kind"] == "Deployment":
                self.container = o["spec"]["template"]["spec"]["containers"][0]
                o["spec"]["replicas"] = 0
            if o["kind"] == "Service" and "webhook" in o["metadata"]["name"]:
                o["spec"] = {"type": "ExternalName", "externalName": "localhost"}
            for webhook in o.get("webhooks", []):
                webhook["clientConfig"]["service"]["port"] = self.port
        first = ("Namespace", "CustomResourceDefinition")
        apply(*[o for o in objects if o["kind"] in first])
        # Webhooks come last: until the operator runs, they would refuse.
        apply(*[o for o in objects if o["kind"] not in first])

    def start(self):
        token = kubectl("create", "token", self.account, "-n", self.namespace, "--duration=2h").strip()
        config = json.loads(kubectl("config", "view", "--raw", "--minify", "-o", "json"))
        config["users"][0]["user"] = {"token": token}
        config["contexts"][0]["context"]["namespace"] = self.namespace
        file = self.folder / "kubeconfig"
        file.write_text(json.dumps(config))
        elsewhere = ("--health-probe-bind-address", "--webhook-port", "--metrics-bind-address", "--webhook-cert-path")
        arguments = [a for a in self.container.get("args", []) if not a.startswith(elsewhere)]
        arguments += [
            f"--health-probe-bind-address=127.0.0.1:{self.health}",
            "--webhook-host=127.0.0.1",
            f"--webhook-port={self.port}",
        ]
        environment = {**os.environ, "KUBECONFIG": str(file), "POD_NAMESPACE": self.namespace}
        for e in self.container.get("env", []):
            environment[e["name"]] = e.get("value", self.namespace)
        self.log = open(self.folder / "log", "a")
        self.process = subprocess.Popen(
            [TARGET / "debug" / self.name, *arguments], env=environment, stdout=self.log, stderr=self.log
        )
        end = time.monotonic() + SOON
        while subprocess.run(["curl", "-sf", f"http://127.0.0.1:{self.health}/readyz"], capture_output=True).returncode:
            if time.monotonic() > end or self.process.poll() is not None:
                raise SystemExit(f"{self.name} does not become ready:\n{self.said()}")
            time.sleep(0.1)
        print(f"{self.name}: runs as {self.account}, and is ready")
        configurations = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        trusted = lambda found: all(
            w["clientConfig"].get("caBundle")
            for c in found["items"]
            if c["metadata"]["name"].startswith(self.name)
            for w in c["webhooks"]
        )
        for each in configurations:
            until(f"{each} have its caBundle", ([each], trusted))

    def stop(self):
        self.process.terminate()
        print(f"{self.name}: ended with {self.process.wait(30)}")

    def said(self):
        return (self.folder / "log").read_text()

    def end(self):
        self.stop()
        forbidden = [line for line in self.said().splitlines() if "orbidden" in line and "cannot" in line]
        print(f"{self.name}: forbidden by its role: {forbidden or 'nothing'}")
