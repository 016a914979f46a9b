"""As much of a client as the package needs for itself: namespaces, definitions, objects, and to wait for one of them.

Not a client for tests; those have their own. YAML is sent as it is, since the server reads it and Python does not.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kubewright._errors import ApiError, ClusterError

Object = dict[str, Any]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JSON = "application/json"
YAML = "application/yaml"
APPLY = "application/apply-patch+yaml"

# The line that makes a document of YAML a definition.
DEFINITION = re.compile(r"""^["']?kind["']?:\s*["']?CustomResourceDefinition["']?\s*(#.*)?$""", re.MULTILINE)

# How long one request may take.
TIMEOUT = 30.0


class Api:
    """The API server that a kubeconfig of kubewright names."""

    def __init__(self, kubeconfig: Path) -> None:
        text = kubeconfig.read_text(encoding="utf-8")

        # The file is the program's own, one value a line.
        def field(name: str) -> str:
            found = re.search(rf"^\s*{name}:\s*(\S+)\s*$", text, re.MULTILINE)
            if found is None:
                raise ClusterError(f"{kubeconfig} has no {name}; was it written by kubewright?")
            return found[1]

        self.address = field("server")
        self._tls = ssl.create_default_context(cadata=_decoded(field("certificate-authority-data")).decode("ascii"))
        with tempfile.TemporaryDirectory(prefix="kubewright-") as private:
            # The standard library reads certificates from files only.
            pair = Path(private) / "pair.pem"
            pair.touch(mode=0o600)
            pair.write_bytes(_decoded(field("client-certificate-data")) + b"\n" + _decoded(field("client-key-data")))
            self._tls.load_cert_chain(pair)

    def request(
        self, method: str, path: str, body: str | None = None, content_type: str = JSON, timeout: float = TIMEOUT
    ) -> Object:
        """One request; the answer's object."""
        connection = self._connect(timeout)
        try:
            headers = {"Accept": JSON}
            if body is not None:
                headers["Content-Type"] = content_type
            connection.request(method, path, body=None if body is None else body.encode(), headers=headers)
            response = connection.getresponse()
            return _answer(f"{method} {path.partition('?')[0]}", response.status, response.read())
        finally:
            connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        address = urllib.parse.urlsplit(self.address)
        assert address.hostname is not None
        return http.client.HTTPSConnection(address.hostname, address.port, timeout=timeout, context=self._tls)

    def wait_for(self, path: str, name: str, wanted: Callable[[Object], bool], timeout: float) -> None:
        """Returns when the object `name` of the collection at `path` is as wanted; that it is not there yet is waited
        for too.
        """
        end = time.monotonic() + timeout
        last: Object | None = None
        while (left := end - time.monotonic()) > 0:
            # A watch without a revision begins with what is there.
            query = urllib.parse.urlencode(
                {"watch": "true", "fieldSelector": f"metadata.name={name}", "timeoutSeconds": int(left) + 1}
            )
            connection = self._connect(left)
            try:
                connection.request("GET", f"{path}?{query}", headers={"Accept": JSON})
                response = connection.getresponse()
                if response.status != 200:
                    _answer(f"watch {path}", response.status, response.read())
                while line := response.readline():
                    last = json.loads(line)["object"]
                    if wanted(last):
                        return
            except TimeoutError:
                break
            finally:
                connection.close()
        status = "it is not there" if last is None else f"its last status is {json.dumps(last.get('status'))}"
        raise ClusterError(f"{path}/{name} was not as it should be within {timeout:g} s; {status}")

    def apply_definition(self, document: str, content_type: str) -> str:
        """Creates a CustomResourceDefinition, or applies it when it is there; its name."""
        try:
            made = self.request("POST", DEFINITIONS, document, content_type)
            return str(made["metadata"]["name"])
        except ApiError as refused:
            if refused.status.get("reason") != "AlreadyExists":
                raise
            name = str(refused.status["details"]["name"])
        self.request("PATCH", f"{DEFINITIONS}/{name}?fieldManager=kubewright-cluster&force=true", document, APPLY)
        return name

    def apply(self, manifest: Mapping[str, Any]) -> None:
        """Applies an object, or creates it when its metadata have a generateName alone."""
        version, kind = str(manifest["apiVersion"]), str(manifest["kind"])
        metadata = manifest.get("metadata", {})
        group = f"/apis/{version}" if "/" in version else f"/api/{version}"
        served = self.request("GET", group)["resources"]
        row = next((row for row in served if row["kind"] == kind and "/" not in row["name"]), None)
        if row is None:
            raise ClusterError(f"the cluster does not serve the kind {kind} in {version}")
        if row["namespaced"]:
            group += f"/namespaces/{metadata.get('namespace', 'default')}"
        path, body = f"{group}/{row['name']}", json.dumps(manifest)
        if "name" in metadata:
            self.request("PATCH", f"{path}/{metadata['name']}?fieldManager=kubewright-cluster&force=true", body, APPLY)
        else:
            self.request("POST", path, body)


def _decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _answer(attempted: str, code: int, body: bytes) -> Object:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = {"message": body.decode(errors="replace")}
    if code >= 400:
        raise ApiError(attempted, code, answer)
    assert isinstance(answer, dict)
    return answer


def established(definition: Object) -> bool:
    """Whether a CustomResourceDefinition is served."""
    conditions = definition.get("status", {}).get("conditions", [])
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def read_definitions(path: Path) -> list[tuple[str, str]]:
    """The CustomResourceDefinitions of a file, or of the files of a folder, each with its content type; other kinds are
    left out.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and file.suffix in (".yaml", ".yml", ".json"))
    else:
        files = [path]
    found: list[tuple[str, str]] = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            if json.loads(text).get("kind") == "CustomResourceDefinition":
                found.append((text, JSON))
            continue
        for document in re.split(r"^---(?=\s|$)", text, flags=re.MULTILINE):
            if DEFINITION.search(document):
                found.append((document, YAML))
    if not found:
        raise ClusterError(f"there is no CustomResourceDefinition in {path}")
    return found
