#!/usr/bin/env python3
"""The three operators on a cluster that is there already: a real one with controllers and nodes, or ours.

    examples/real.py KUBECONFIG [sidecarset] [database] [autorebooter] [joint]

Of each operator the generated configuration is applied, with the certificate that it makes itself in place of
cert-manager's. Its program runs on this machine: as its service account, under its generated role, with the arguments
of its Deployment, which has no pods. Webhooks reach it by its Service, of the type ExternalName. Then scenarios are
played; every line says what was seen, so that the runs on two clusters can be compared; what never came is a NO, and
the exit status is 1. Wanted: kubectl, the built programs (`cargo build -p sidecarset -p database -p autorebooter`),
and, for the autorebooter, `POSTGRES` with the address of a PostgreSQL (`postgres://…`) and psql. `joint` is a shop
that is rolled when a value changes in a Database, of PostgreSQL and of MariaDB, with real servers (`real_servers.py`).

Not here: what a kubelet must do (restarts of containers, processes), which nodes that nobody runs do not.
"""

import base64
import json
import os
import subprocess
import sys
import time

from real_cluster import HERE, KUBECONFIG, MISSED, Operator, apply, free_port, get, kubectl, refused, until
from real_servers import Server

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


def ask(type_, address, data, sql):
    """Runs SQL as an application does: with the Secret of the Database. None where the server refuses it."""
    part = {key: base64.b64decode(value).decode() for key, value in data.items()}
    password = {"postgres": "PGPASSWORD", "mariadb": "MYSQL_PWD"}[type_]
    user, database = part["username"], part["database"]
    command = {
        "postgres": ["psql", "-h", address, "-U", user, "-d", database, "-tA", "-v", "ON_ERROR_STOP=1", "-c"],
        "mariadb": ["mariadb", "-h", address, "-u", user, "-N", database, "-e"],
    }[type_]
    environment = {**os.environ, password: part["password"]}
    done = subprocess.run([*command, sql], env=environment, text=True, capture_output=True)
    return done.stdout.strip() if done.returncode == 0 else None


def play_joint():
    database, autorebooter = Operator("database"), Operator("autorebooter")
    for type_, watched in (("postgres", "postgres"), ("mariadb", "mysql")):
        play_joint_of(type_, watched)
    autorebooter.end()
    database.end()


def play_joint_of(type_, watched):
    # A name of its own: the database `postgres` belongs to the server.
    name = f"shop-{type_}"
    print(f"joint: an UPDATE in a Database of type {type_} rolls the shop")
    own = {"namespace": "default"}
    mydb = {"apiVersion": "db.example.com/v1alpha1", "kind": "Database", "metadata": {"name": name, **own}}
    group = "autoreboot.my.domain/v1alpha1"
    prices = {"apiVersion": group, "kind": "RebootPolicy", "metadata": {"name": "prices", **own}}
    table = {"name": "settings", "column": "version", "where": "name = 'price-list'"}
    source = {"type": watched, "databaseRef": {"name": name}, "pollInterval": "1s", "watch": {"table": table}}
    targets = [{"kind": "Deployment", "name": "shop"}]
    policy = {"targets": targets, "source": source, "debounce": "100ms", "minRestartInterval": "0s"}
    apply(volume(name), deployment("shop", 2))
    apply({**mydb, "spec": {"type": type_}})
    addressed = lambda p: p.get("status", {}).get("podIP")
    found = until("its pod has an address", (["pod", f"{name}-0"], addressed))
    before = get("database", name)
    print("  Ready without a server:", condition(before, "Ready").get("status"))
    data = lambda secret: get("secret", secret)["data"]
    server = Server(found, data)
    # 1, 4: somebody logged in; a password that is changed works, and the old one does not.
    is_running = lambda d: d.get("status", {}).get("phase") == "Running"
    until("somebody logged in", (["database", name], is_running))
    secret, address = f"{name}-credentials", server.address
    old = data(secret)
    kubectl("patch", "secret", secret, "-p", json.dumps({"stringData": {"password": "another-password-of-mine"}}))
    rotated = ["events", "--field-selector", "reason=PasswordRotated,involvedObject.name=" + name]
    until("its password is rotated", (rotated, lambda l: l["items"]))
    asked = [ask(type_, address, given, "SELECT 1") for given in (old, data(secret))]
    print("  old password, new password:", asked)

    def sql(text):
        if ask(type_, address, data(secret), text) is None:
            raise SystemExit(f"the database refuses: {text}")

    sql("CREATE TABLE settings (name varchar(99), version varchar(99))")
    sql("INSERT INTO settings VALUES ('price-list', '41')")
    apply({**prices, "spec": policy})
    until("it watches", (["rebootpolicy", "prices"], lambda p: condition(p, "Ready").get("reason") == "Watching"))
    began = time.monotonic()
    sql("UPDATE settings SET version = '42'")
    mark = "kubectl.kubernetes.io/restartedAt"
    marked = lambda d: mark in d["spec"]["template"]["metadata"].get("annotations", {})
    until("the shop is restarted", (["deployment", "shop"], marked))
    print("  within 5 s:", time.monotonic() - began < 5)
    rolled = lambda d: d["status"].get("observedGeneration") == 2 and d["status"].get("updatedReplicas") == 2
    until("the shop is rolled", (["deployment", "shop"], rolled))
    server.down()
    until("the Database tells that its server is gone", (["database", name], lambda d: not is_running(d)))
    sick = get("rebootpolicy", "prices")["status"]
    print("  restarts while the database is down:", sick["restarts"])
    server.stop()
    kubectl("delete", "rebootpolicy/prices", "deployment/shop")
    kubectl("delete", "database", name, "--timeout=60s")
    kubectl("delete", "--wait=false", f"pvc/data-{name}-0", f"pv/{name}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    plays = {
        "sidecarset": play_sidecarset,
        "database": play_database,
        "autorebooter": play_autorebooter,
        "joint": play_joint,
    }
    for name in sys.argv[2:] or plays:
        plays[name]()
    sys.exit(f"never came: {MISSED}" if MISSED else 0)
