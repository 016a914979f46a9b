#!/usr/bin/env python3
"""The three operators on a cluster that is there already: a real one with controllers and nodes, or ours.

    examples/real.py KUBECONFIG [sidecarset] [database] [autorebooter]

Of each operator the generated configuration is applied, with the certificate that it makes itself in place of
cert-manager's. Its program runs on this machine: as its service account, under its generated role, with the arguments
of its Deployment, which has no pods. Webhooks reach it by its Service, of the type ExternalName. Then scenarios are
played; every line says what was seen, so that the runs on two clusters can be compared; what never came is a NO, and
the exit status is 1. Wanted: kubectl, the built programs (`cargo build -p sidecarset -p database -p autorebooter`),
and, for the autorebooter, `POSTGRES` with the address of a PostgreSQL (`postgres://…`) and psql.

Not here: what a kubelet must do (restarts of containers, processes), which nodes that nobody runs do not.
"""

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


def deployment(name, replicas, **template):
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "main:1"}], **template}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod},
    }


def pod(name, app, namespace="default"):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "main:1"}]},
    }


def sidecar_set(name, app, containers, **spec):
    return {
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "SidecarSet",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": app}}, "containers": containers, **spec},
    }


def counted(name, *expected):
    def is_so(found):
        status = (found or {}).get("status", {})
        counts = tuple(status.get(k, 0) for k in ("matchedPods", "updatedPods", "readyPods", "updatedReadyPods"))
        return status.get("observedGeneration") == found["metadata"]["generation"] and counts == expected

    until(f"{name} counts {expected}", (["sidecarset", name], is_so))


def play_sidecarset():
    operator = Operator("sidecarset")
    names = lambda p: [c["name"] for c in p["spec"]["containers"]]
    agent = lambda image: [{"name": "agent", "image": image}]
    until("the default ServiceAccount", (["serviceaccount", "default", "-n", "default"], bool))
    apply(pod("older", "web"))
    print("1, 2, 4, 7: injection, others, older pods, defaults")
    apply(
        sidecar_set(
            "both",
            "web",
            [
                {"name": "before", "image": "b:1", "podInjectPolicy": "BeforeAppContainer"},
                {"name": "after", "image": "a:1", "podInjectPolicy": "AfterAppContainer"},
            ],
        )
    )
    until("both is known", (["sidecarset", "both"], lambda s: s.get("status", {}).get("observedGeneration")))
    print("  defaulted:", json.dumps(get("sidecarset", "both")["spec"]["updateStrategy"]))
    apply(pod("other", "apache"), deployment("web", 2))
    print("  older and other:", names(get("pod", "older")), names(get("pod", "other")))
    pods = until(
        "two pods of the Deployment", (["pods", "-l", "app=web,pod-template-hash"], lambda l: len(l["items"]) == 2)
    )
    print("  injected:", [names(p) for p in pods["items"]])
    counted("both", 2, 2, 2, 2)
    kubectl("delete", "deployment/web", "pod/older", "pod/other", "sidecarset/both")
    print("3: namespaces")
    apply(*[{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in ("ns-1", "ns-2")])
    for n in ("ns-1", "ns-2"):
        until(f"the ServiceAccount of {n}", (["serviceaccount", "default", "-n", n], bool))
    apply(sidecar_set("scoped", "scoped", agent("agent:1"), namespace="ns-1"))
    until("scoped is known", (["sidecarset", "scoped"], lambda s: s.get("status", {}).get("observedGeneration")))
    apply(pod("a", "scoped", "ns-1"), pod("a", "scoped", "ns-2"))
    print("  injected:", [names(get("pod", "a", "-n", n)) for n in ("ns-1", "ns-2")])
    print("8, 16: what is refused")
    for wrong in (
        {"selector": {}},
        {"containers": []},
        {"updateStrategy": {"maxUnavailable": "abc"}},
        {"containers": [{"name": "a", "image": "a"}] * 2},
    ):
        o = sidecar_set("wrong", "web", agent("agent:1"))
        o["spec"].update(wrong)
        print("  ", refused(o))
    print("  ", refused(sidecar_set("second", "scoped", agent("agent:1"), namespace="ns-1")))
    print("13, 15, 17: paused, revisions, injection paused")
    apply(sidecar_set("agents", "api", agent("agent:1")))
    apply(deployment("api", 2))
    counted("agents", 2, 2, 2, 2)
    apply(sidecar_set("agents", "api", agent("agent:2"), updateStrategy={"paused": True}))
    counted("agents", 2, 0, 2, 0)
    apply(pod("new", "api"))
    print("  new:", [c["image"] for c in get("pod", "new")["spec"]["containers"]])
    counted("agents", 3, 1, 3, 1)
    found = until(
        "two revisions",
        (
            ["controllerrevisions", "-n", operator.namespace],
            lambda l: len([r for r in l["items"] if r["metadata"]["name"].startswith("agents")]) == 2,
        ),
    )
    print("  revisions:", sorted(r["revision"] for r in found["items"] if r["metadata"]["name"].startswith("agents")))
    apply(
        sidecar_set(
            "agents", "api", agent("agent:2"), updateStrategy={"paused": True}, injectionStrategy={"paused": True}
        )
    )
    until(
        "agents is known",
        (["sidecarset", "agents"], lambda s: s["status"]["observedGeneration"] == s["metadata"]["generation"]),
    )
    apply(pod("newer", "api"))
    print("  newer:", names(get("pod", "newer")))
    print("9, 11: an image is upgraded in place; the next pod waits until a kubelet has restarted the container")
    before = {
        p["metadata"]["name"]: p["metadata"]["uid"] for p in get("pods", "-l", "app=api,pod-template-hash")["items"]
    }
    apply(sidecar_set("agents", "api", agent("agent:3")))
    upgraded = lambda p: any(c["image"] == "agent:3" for c in p["spec"]["containers"])
    found = until(
        "a pod has agent:3", (["pods", "-l", "app=api,pod-template-hash"], lambda l: any(map(upgraded, l["items"])))
    )
    print("  the same pods:", before == {p["metadata"]["name"]: p["metadata"]["uid"] for p in found["items"]})
    print("18: webhook down, and back")
    operator.stop()
    why = refused(pod("waiting", "api"))
    print("  refused:", why.replace(str(operator.port), "PORT"))
    operator.start()
    apply(pod("waiting", "api"))
    operator.end()


def volume(name):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": f"/nowhere/{name}"},
        },
    }


def condition(found, type_):
    return next((c for c in (found or {}).get("status", {}).get("conditions", []) if c["type"] == type_), {})


def play_database():
    operator = Operator("database")
    database = lambda name, **spec: {
        "apiVersion": "db.example.com/v1alpha1",
        "kind": "Database",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }
    print("1: children")
    # Nobody makes volumes here.
    apply(*[volume(f"{operator.name}-{n}") for n in range(3)])
    apply(database("mydb", type="postgres"))
    found = until(
        "it is provisioned", (["database", "mydb"], lambda d: d.get("status", {}).get("phase") not in (None, "Pending"))
    )
    print("  phase:", found and found["status"]["phase"], "Ready:", condition(found, "Ready").get("status"))
    until("its pod", (["pod", "mydb-0"], bool))
    kinds = get("statefulset,service,secret,pvc", "-l", "app.kubernetes.io/managed-by")["items"]
    print(
        "  children:",
        sorted(
            f"{o['kind']}/{o['metadata']['name']} of {[r['kind'] for r in o['metadata'].get('ownerReferences', [])]}"
            for o in kinds
            if "mydb" in o["metadata"]["name"]
        ),
    )
    print("2: the seed's password")
    done = subprocess.run(
        ["kubectl", "--kubeconfig", KUBECONFIG, "apply", "-f", "-"],
        input=json.dumps(database("seed", type="mysql", user="root", password="root")),
        text=True,
        capture_output=True,
    )
    print("  warned:", [line for line in done.stderr.splitlines() if "Warning" in line])
    until("the password is out of the spec", (["database", "seed"], lambda d: "password" not in d["spec"]))
    print("3: a Secret of one's own")
    apply(database("own", type="postgres", passwordSecretRef={"name": "mine", "key": "password"}))
    until(
        "it waits for the Secret",
        (["database", "own"], lambda d: condition(d, "CredentialsReady").get("reason") == "SecretNotFound"),
    )
    apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "mine", "namespace": "default"},
            "stringData": {"password": "a-long-password-of-mine"},
        }
    )
    until("its StatefulSet", (["statefulset", "own"], bool))
    print("5: drift")
    kubectl("delete", "service", "mydb")
    until("the Service is back", (["service", "mydb"], bool))
    print("6, 7: what is refused")
    for change in ({"type": "mysql"}, {"storage": {"size": "1Mi"}}, {"version": "1"}):
        print(
            "  ", kubectl("patch", "database", "mydb", "--type=merge", "-p", json.dumps({"spec": change}), fails=True)
        )
    print("4, 9: LEFT OUT, they log in to a server, and a pod that nobody runs has none")
    print("10: a pod that says it is ready is no server")
    ready = lambda p: any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", []))
    until("its pod is ready", (["pod", "mydb-0"], ready))
    quiet = get("database", "mydb")
    time.sleep(3)
    found = get("database", "mydb")
    print("  Ready:", condition(found, "Ready").get("status"), condition(found, "Ready").get("reason"))
    print("  quiet:", quiet["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"])
    print("11: suspend")
    kubectl("patch", "database", "mydb", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    until("no replicas", (["statefulset", "mydb"], lambda s: s["spec"]["replicas"] == 0))
    until("it is suspended", (["database", "mydb"], lambda d: d["status"]["phase"] == "Suspended"))
    print("8: deletion")
    kubectl("patch", "database", "seed", "--type=merge", "-p", '{"spec":{"deletionPolicy":"Delete"}}')
    kubectl("delete", "database", "mydb", "seed", "own", "--timeout=60s")
    until(
        "of the claims, those that are kept stay",
        (["pvc"], lambda l: sorted(p["metadata"]["name"] for p in l["items"]) == ["data-mydb-0", "data-own-0"]),
    )
    kubectl("delete", "secret/mine", "pvc/data-mydb-0", "pvc/data-own-0")
    kubectl("delete", "pv", *[f"{operator.name}-{n}" for n in range(3)])
    operator.end()


def play_autorebooter():
    address = os.environ.get("POSTGRES")
    if not address:
        return print("autorebooter: LEFT OUT, POSTGRES names no database")
    sql = lambda text: subprocess.run(["psql", "-q", "-v", "ON_ERROR_STOP=1", address, "-c", text], check=True)
    sql("DROP TABLE IF EXISTS settings CASCADE; DROP FUNCTION IF EXISTS autoreboot_notify CASCADE;")
    subprocess.run(
        ["psql", "-q", "-v", "ON_ERROR_STOP=1", address, "-f", HERE / "autorebooter/tests/settings.sql"], check=True
    )
    operator = Operator("autorebooter")
    policy = lambda name, **more: {
        "apiVersion": "autoreboot.my.domain/v1alpha1",
        "kind": "RebootPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "targets": [{"kind": "Deployment", "name": "shop"}],
            "debounce": "100ms",
            "minRestartInterval": "0s",
            "source": {
                "type": "postgres",
                "connectionSecretRef": {"name": "shop-db", "key": "uri"},
                "pollInterval": "10m",
                "watch": {
                    "table": {
                        "schema": "public",
                        "name": "settings",
                        "column": "version",
                        "where": "key = 'price-list'",
                    }
                },
            },
            **more,
        },
    }
    print("1, 3: the first value, and changes that are told")
    apply(
        deployment("shop", 2),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "shop-db", "namespace": "default"},
            "stringData": {"uri": address},
        },
    )
    until("the shop runs", (["deployment", "shop"], lambda d: d.get("status", {}).get("availableReplicas") == 2))
    apply(policy("prices"))
    until("it watches", (["rebootpolicy", "prices"], lambda p: condition(p, "Ready").get("reason") == "Watching"))
    print("  generation:", get("deployment", "shop")["metadata"]["generation"])
    began = time.monotonic()
    sql("UPDATE settings SET version = '42'")
    until("one restart", (["rebootpolicy", "prices"], lambda p: p["status"].get("restarts") == 1))
    print("  within 5 s:", time.monotonic() - began < 5)
    rolled = (
        lambda d: d["metadata"]["generation"] == 2
        and d["status"].get("observedGeneration") == 2
        and d["status"].get("updatedReplicas")
        == d["status"].get("replicas")
        == d["status"].get("availableReplicas")
        == 2
    )
    until("the shop is rolled", (["deployment", "shop"], rolled))
    events = until(
        "an event on the Deployment",
        (
            ["events", "--field-selector", "involvedObject.kind=Deployment,reason=RestartedByPolicy"],
            lambda l: l["items"],
        ),
    )
    print("  event:", events and events["items"][0]["message"])
    print("7: one restart, however often the operator starts")
    operator.stop()
    sql("UPDATE settings SET version = '43'")
    operator.start()
    until("two restarts", (["rebootpolicy", "prices"], lambda p: p["status"].get("restarts") == 2))
    print("2: a change that is found by asking")
    change = lambda spec: kubectl("patch", "rebootpolicy", "prices", "--type=merge", "-p", json.dumps({"spec": spec}))
    change({"source": {"mode": "Poll", "pollInterval": "1s"}})
    sql("UPDATE settings SET version = '44'")
    until("three restarts", (["rebootpolicy", "prices"], lambda p: p["status"].get("restarts") == 3))
    pending = lambda reason: lambda p: condition(p, "RestartPending").get("reason") == reason
    print("4: a value must rest")
    change({"debounce": "8s"})
    sql("UPDATE settings SET version = '45'")
    until("it waits", (["rebootpolicy", "prices"], pending("Debouncing")))
    sql("UPDATE settings SET version = '44'")
    found = until("nothing is to be done any more", (["rebootpolicy", "prices"], pending("NoChange")))
    print("  restarts:", found["status"]["restarts"])
    print("5: restarts keep their distance")
    change({"debounce": "100ms", "minRestartInterval": "1h"})
    sql("UPDATE settings SET version = '45'")
    found = until("it waits", (["rebootpolicy", "prices"], pending("RateLimited")))
    print("  restarts:", found["status"]["restarts"])
    change({"minRestartInterval": "0s"})
    until("four restarts", (["rebootpolicy", "prices"], lambda p: p["status"].get("restarts") == 4))
    print("6: a database that is down")
    secret = lambda uri: kubectl("patch", "secret", "shop-db", "-p", json.dumps({"stringData": {"uri": uri}}))
    secret(f"postgres://postgres@127.0.0.1:{free_port()}/postgres")
    sql("UPDATE settings SET version = '46'")
    is_down = lambda p: condition(p, "DatabaseReachable").get("status") == "False"
    found = until("it is told", (["rebootpolicy", "prices"], is_down))
    print("  phase:", found["status"]["phase"], "restarts:", found["status"]["restarts"])
    secret(address)
    until("five restarts", (["rebootpolicy", "prices"], lambda p: p["status"].get("restarts") == 5))
    print("11: suspend")
    change({"suspend": True})
    until("it is suspended", (["rebootpolicy", "prices"], lambda p: p["status"]["phase"] == "Suspended"))
    sql("UPDATE settings SET version = '47'")
    time.sleep(3)
    print("  restarts:", get("rebootpolicy", "prices")["status"]["restarts"])
    print("8, 9: targets and what is refused")
    apply(policy("missing", targets=[{"kind": "Deployment", "name": "nobody"}]))
    found = until(
        "the target is missing",
        (["rebootpolicy", "missing"], lambda p: condition(p, "TargetsFound").get("status") == "False"),
    )
    print("  says:", condition(found, "TargetsFound").get("message"))
    print(
        "  ",
        refused(
            policy(
                "wrong",
                source={"type": "mysql", "mode": "Notify", "pollInterval": "100ms", "watch": {"query": "SELECT 1"}},
            )
        ),
    )
    print("10: a deleted policy leaves its targets")
    kubectl("delete", "rebootpolicy", "prices", "missing")
    print("  generation:", get("deployment", "shop")["metadata"]["generation"])
    kubectl("delete", "deployment/shop", "secret/shop-db")
    kubectl("delete", "events", "--all")
    operator.end()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    KUBECONFIG = sys.argv[1]
    plays = {"sidecarset": play_sidecarset, "database": play_database, "autorebooter": play_autorebooter}
    for name in sys.argv[2:] or plays:
        plays[name]()
    sys.exit(f"never came: {MISSED}" if MISSED else 0)
