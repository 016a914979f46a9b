"""An operator in Python, of the standard library alone: for each Copy a ConfigMap with its text.

Usage: copier.py HABIT. "good" is right; the others are each wrong in one way:
  made-up-name   makes the ConfigMap under a name that the server makes up, and writes down afterwards that it did
  gives-up       takes a write that failed for done
  exits          ends when a write fails for the third time
  hops           writes its status again and again
  elects         is right, and works only while it holds a lock in a ConfigMap, as client-go had it before there were Leases
  speaks         is right, and runs a command in a pod before it writes its status
  comes-back     is right, and makes a changed ConfigMap anew: the first time it lets eight seconds pass before it does
  sleeps         writes when it starts, and never again
"""
import http.client
import json
import os
import queue
import socket
import ssl
import sys
import threading
import time

habit = sys.argv[1]
with open(os.environ["KUBECONFIG"]) as file:
    config = json.load(file)  # JSON is YAML, and kubewright writes JSON
cluster = config["clusters"][0]["cluster"]
token = config["users"][0]["user"]["token"]
host = cluster["server"].removeprefix("https://")
import base64

context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
COPIES = "/apis/example.com/v1/namespaces/default/copies"
MAPS = "/api/v1/namespaces/default/configmaps"
LOCK = "control-plane.alpha.kubernetes.io/leader"
OWN = f"/api/v1/namespaces/{os.environ['POD_NAMESPACE']}/configmaps"
work = queue.Queue()
away = {}  # until when a name is left alone


class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(f"{code}: {text[:200]}")
        self.code = code


def ask(method, path, body=None, kind="application/json"):
    connection = http.client.HTTPSConnection(host, context=context)
    try:
        headers = {"Authorization": "Bearer " + token, "Content-Type": kind, "Accept": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status >= 300:
            raise Refused(answer.status, text)
        return json.loads(text)
    finally:
        connection.close()


def watch(path, selector, key):
    while True:
        try:
            listed = ask("GET", path + "?" + selector)
            for item in listed["items"]:
                work.put(key(item))
            version = listed["metadata"]["resourceVersion"]
            connection = http.client.HTTPSConnection(host, context=context)
            query = f"{path}?watch=true&resourceVersion={version}&{selector}"
            connection.request("GET", query, headers={"Authorization": "Bearer " + token})
            for line in connection.getresponse():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    break
                work.put(key(event["object"]))
        except Exception as error:
            print("watch:", error, flush=True)
        time.sleep(0.1)


def write_lock(there, identity):
    record = json.dumps({"holderIdentity": identity, "renewTime": time.time()})
    lock = {"metadata": {**there.get("metadata", {}), "name": "lock", "annotations": {LOCK: record}}}
    return ask("PUT", OWN + "/lock", lock) if there else ask("POST", OWN, lock)


def elect():
    """Returns when the lock is held, and renews it from then on."""
    identity, told, since = str(os.getpid()), None, time.time()
    while True:
        try:
            there = ask("GET", OWN + "/lock")
            record = there["metadata"]["annotations"][LOCK]
        except Refused as refused:
            if refused.code != 404:
                raise
            there, record = {}, None
        if record != told:
            told, since = record, time.time()
        if record is None or time.time() - since > 60:
            break
        time.sleep(0.05)
    lock = write_lock(there, identity)

    def renew(lock):
        while True:
            time.sleep(0.2)
            lock = write_lock(lock, identity)

    threading.Thread(target=renew, args=(lock,), daemon=True).start()


def speak(name, owner):
    """Runs a command in a pod, over a WebSocket."""
    pods = "/api/v1/namespaces/default/pods"
    try:
        pod = ask("GET", f"{pods}/{name}")
    except Refused as refused:
        if refused.code != 404:
            raise
        spec = {"containers": [{"name": "main", "image": "main:1"}]}
        pod = ask("POST", pods, {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec})
    if pod["status"].get("phase") != "Running":
        raise Exception("the pod does not run yet")
    address, port = host.split(":")
    plain = socket.create_connection((address, int(port)))
    with context.wrap_socket(plain, server_hostname=address) as connection:
        connection.sendall(
            f"GET {pods}/{name}/exec?command=date&stdout=true HTTP/1.1\r\nHost: {host}\r\n"
            f"Authorization: Bearer {token}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            "Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n".encode()
        )
        said = b""
        while b'"Success"' not in said:
            piece = connection.recv(4096)
            if not piece:
                raise Exception(f"the command failed: {said[:300]}")
            said += piece


def reconcile(name):
    try:
        copy = ask("GET", f"{COPIES}/{name}")
    except Refused as refused:
        if refused.code == 404:
            return
        raise
    if "deletionTimestamp" in copy["metadata"] or time.time() < away.get(name, 0):
        return
    owner = {"apiVersion": "example.com/v1", "kind": "Copy", "name": name, "uid": copy["metadata"]["uid"]}
    text = copy["spec"]["text"] * (2 if copy["spec"].get("twice") else 1)
    child = {"metadata": {"labels": {"copy": name}, "ownerReferences": [owner]}, "data": {"text": text}}
    present = ask("GET", f"{MAPS}?labelSelector=copy%3D{name}")["items"]
    present = [item for item in present if item["metadata"]["ownerReferences"][0]["uid"] == owner["uid"]]
    if habit == "made-up-name":
        made = copy.get("status", {}).get("child")
        present = [item for item in present if item["metadata"]["name"] == made]
        child["metadata"]["generateName"] = name + "-"
    else:
        child["metadata"]["name"] = name
    if not present:
        made = ask("POST", MAPS, child)
    elif habit == "comes-back" and present[0]["data"] != child["data"]:
        wait = 0 if name in away else 8
        away[name] = time.time() + wait
        ask("DELETE", f"{MAPS}/{name}")
        threading.Timer(wait, work.put, (name,)).start()
        return
    elif present[0]["data"] != child["data"]:
        made = ask("PUT", f"{MAPS}/{present[0]['metadata']['name']}", {**present[0], "data": child["data"]})
    else:
        made = present[0]
    if habit == "speaks":
        speak(name, owner)
    status = {"child": made["metadata"]["name"]}
    if habit == "hops":
        status["hops"] = copy.get("status", {}).get("hops", 0) + 1
    if copy.get("status") != status:
        ask("PATCH", f"{COPIES}/{name}/status", {"status": status}, "application/merge-patch+json")


copy_of = lambda item: item["metadata"]["name"]
owner_of = lambda item: item["metadata"]["labels"]["copy"]
if habit == "elects":
    elect()
if habit == "sleeps":
    ask("POST", OWN, {"metadata": {"generateName": "born-"}})
    print("it sleeps", flush=True)
    copy_of = lambda item: time.sleep(3600)
threading.Thread(target=watch, args=(COPIES, "", copy_of), daemon=True).start()
threading.Thread(target=watch, args=(MAPS, "labelSelector=copy", owner_of), daemon=True).start()
failures = 0
while True:
    name = work.get()
    try:
        reconcile(name)
        failures = 0
    except Exception as error:
        print("reconcile", name, error, flush=True)
        failures += 1
        if habit == "exits" and failures == 3:
            sys.exit("too many failures")
        if habit == "gives-up":
            continue
        time.sleep(0.1)
        work.put(name)
