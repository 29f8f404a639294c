"""What hack/compare/helm-lifecycle uses: a small API client, release records, and
the comparison of objects. Needs PyYAML and helm-python-sdk, which the scripts install."""

import base64
import gzip
import http.client
import json
import os
import re
import ssl
import subprocess
import tempfile
import time
import urllib.parse

import yaml

# What controllers make, and what every namespace has.
IGNORED_KINDS = {
    "Event", "Pod", "ReplicaSet", "Endpoints", "EndpointSlice", "ControllerRevision", "Lease", "PodMetrics",
    "PersistentVolume", "VolumeAttachment", "CSINode", "Node", "APIService", "FlowSchema", "PriorityLevelConfiguration",
    "ComponentStatus", "IPAddress", "ServiceCIDR",
}
IGNORED_NAMES = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
# Set by the server or by controllers, or different by nature.
VOLATILE = {"uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink", "ownerReferences"}
VOLATILE_FIELDS = {"clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort", "caBundle", "volumeName"}
VOLATILE_KEYS = ("deployment.kubernetes.io/", "deprecated.daemonset.template.generation", "pv.kubernetes.io/",
                 "volume.kubernetes.io/", "volume.beta.kubernetes.io/", "batch.kubernetes.io/", "controller-uid")


class ApiError(Exception):
    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code = code


class Api:
    """Requests to an API server as the user of a kubeconfig."""

    def __init__(self, kubeconfig):
        config = yaml.safe_load(open(kubeconfig))
        context = {c["name"]: c["context"] for c in config["contexts"]}[config["current-context"]]
        cluster = {c["name"]: c["cluster"] for c in config["clusters"]}[context["cluster"]]
        user = {u["name"]: u["user"] for u in config["users"]}[context["user"]]
        self.url = urllib.parse.urlsplit(cluster["server"])
        self.headers = {"Accept": "application/json"}
        self.tls = None
        if self.url.scheme == "https":
            self.tls = ssl.create_default_context(cadata=self._text(cluster, "certificate-authority"))
            if "client-certificate-data" in user or "client-certificate" in user:
                with tempfile.TemporaryDirectory() as directory:
                    paths = []
                    for name in ("client-certificate", "client-key"):
                        paths.append(os.path.join(directory, name))
                        with open(paths[-1], "w", encoding="utf-8") as file:
                            file.write(self._text(user, name))
                    self.tls.load_cert_chain(*paths)
        if "token" in user:
            self.headers["Authorization"] = f"Bearer {user['token']}"
        self.connection = None

    @staticmethod
    def _text(entry, name):
        if f"{name}-data" in entry:
            return base64.b64decode(entry[f"{name}-data"]).decode()
        return open(entry[name]).read() if name in entry else None

    def request(self, method, path, body=None, content_type="application/json", accept=None):
        headers = dict(self.headers)
        if accept:
            headers["Accept"] = accept
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = content_type
        for attempt in range(10):
            try:
                if self.connection is None:
                    kind = http.client.HTTPSConnection if self.tls else http.client.HTTPConnection
                    options = {"context": self.tls} if self.tls else {}
                    self.connection = kind(self.url.hostname, self.url.port, timeout=60, **options)
                self.connection.request(method, path, data, headers)
                answer = self.connection.getresponse()
                text = answer.read()
                if answer.status not in (429, 503):
                    break
                # New kinds are being made ready.
                time.sleep(0.3)
            except (OSError, http.client.HTTPException):
                self.connection = None
                if attempt == 9:
                    raise
        if answer.status >= 300:
            raise ApiError(answer.status, text.decode(errors="replace")[:500])
        return json.loads(text) if text else None

    def find(self, path):
        try:
            return self.request("GET", path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def apply(self, path, body):
        options = "?fieldManager=compare&force=true"
        return self.request("PATCH", path + options, body, "application/apply-patch+yaml")

    def resources(self):
        """Group, version, plural, kind and scope of everything that can be listed."""
        form = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        for root in ("/api", "/apis"):
            for group in self.request("GET", root, accept=form)["items"]:
                version = group["versions"][0]
                name = group["metadata"].get("name", "")
                for resource in version.get("resources", []):
                    if "list" not in resource["verbs"]:
                        continue
                    prefix = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
                    yield prefix, resource["resource"], resource["responseKind"]["kind"], resource["scope"]

    def create_namespace(self, name):
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def delete(self, path):
        try:
            self.request("DELETE", path)
        except ApiError as error:
            if error.code != 404:
                raise


def names(api):
    """The cluster-scoped objects there are, by resource and name."""
    found = set()
    for prefix, plural, kind, scope in api.resources():
        if scope != "Namespaced" and kind not in IGNORED_KINDS and kind != "Namespace":
            for item in (api.find(f"{prefix}/{plural}") or {"items": []})["items"]:
                found.add((prefix.split("/")[2] if prefix.startswith("/apis") else "", plural, item["metadata"]["name"]))
    return found


def manager(api, namespace):
    """The field manager under which the objects of a namespace were applied."""
    for prefix, plural, _, scope in list(api.resources()):
        if scope == "Namespaced":
            for item in (api.find(f"{prefix}/namespaces/{namespace}/{plural}") or {"items": []})["items"]:
                for entry in item["metadata"].get("managedFields", []):
                    if entry["operation"] == "Apply":
                        return entry["manager"]
    return None


def objects(api, namespace, before):
    """What is in a namespace, and cluster-scoped objects that are not among those of before; by kind and name."""
    found = {}
    for prefix, plural, kind, scope in list(api.resources()):
        if kind in IGNORED_KINDS or kind == "Namespace":
            continue
        group = prefix.split("/")[2] if prefix.startswith("/apis") else ""
        namespaced = scope == "Namespaced"
        path = f"{prefix}/namespaces/{namespace}/{plural}" if namespaced else f"{prefix}/{plural}"
        try:
            items = api.request("GET", path)["items"]
        except ApiError as error:
            if error.code in (404, 405):
                continue
            raise
        for item in items:
            name = item["metadata"]["name"]
            if (kind, name) in IGNORED_NAMES or item.get("type") == "helm.sh/release.v1":
                continue
            if not namespaced and (group, plural, name) in before:
                continue
            # On its way: whoever holds a claim or a namespace lets go of it in time.
            if "deletionTimestamp" in item["metadata"]:
                continue
            if kind == "Job" and any(owner["kind"] == "CronJob" for owner in item["metadata"].get("ownerReferences", [])):
                continue
            found[f"{kind}.{group}/{name}".replace(namespace, "NAMESPACE")] = normalised(item, namespace)
    return found


def normalised(item, namespace):
    """An object without what differs from one run to the next."""
    item = json.loads(json.dumps(item).replace(namespace, "NAMESPACE"))
    item.pop("status", None)

    def clean(node):
        if isinstance(node, dict):
            for key in [k for k in node if k in VOLATILE or k in VOLATILE_FIELDS or k.startswith(VOLATILE_KEYS)]:
                del node[key]
            for value in node.values():
                clean(value)
        elif isinstance(node, list):
            for value in node:
                clean(value)

    clean(item)
    metadata = item["metadata"]
    if not metadata.get("annotations"):
        metadata.pop("annotations", None)
    if item.get("kind") == "Namespace":
        metadata.pop("labels", None)
    return item


def records(api, namespace, release):
    """The release records, oldest first, as they are stored."""
    selector = urllib.parse.quote(f"owner=helm,name={release}")
    found = []
    for item in api.request("GET", f"/api/v1/namespaces/{namespace}/secrets?labelSelector={selector}")["items"]:
        packed = base64.b64decode(base64.b64decode(item["data"]["release"]))
        record = json.loads(gzip.decompress(packed))
        labels = {k: v for k, v in item["metadata"]["labels"].items() if k not in ("createdAt", "modifiedAt")}
        found.append({"object": item["metadata"]["name"], "type": item["type"], "labels": labels, "record": record})
    return sorted(found, key=lambda entry: entry["record"]["version"])


TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def comparable(entry, namespace):
    """A record without times, and with the namespace under another name."""
    text = TIMES.sub("TIME", json.dumps(entry).replace(namespace, "NAMESPACE"))
    entry = json.loads(text)
    for part in ("modtime", "schemamodtime"):
        entry["record"]["chart"].pop(part, None)
    for part in ("templates", "files", "schema"):
        value = entry["record"]["chart"].get(part)
        if isinstance(value, list):
            # The dates of packed files are not part of the content.
            for file in value:
                file.pop("modtime", None)
            entry["record"]["chart"][part] = sorted(value, key=lambda file: file["name"])
    return entry


def hook_order(entry):
    """The hooks that ran, in the order in which they did."""
    ran = [h for h in entry["record"].get("hooks") or [] if (h.get("last_run") or {}).get("started_at", "").startswith("2")]
    return [f"{h['kind']}/{h['name']}:{h['last_run']['phase']}" for h in sorted(ran, key=lambda h: h["last_run"]["started_at"])]


def differences(left, right, path=""):
    """Where two trees differ, as paths with both values."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(set(left) | set(right)):
            yield from differences(left.get(key, "<none>"), right.get(key, "<none>"), f"{path}.{key}")
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, (one, other) in enumerate(zip(left, right)):
            yield from differences(one, other, f"{path}[{number}]")
    elif left != right:
        yield path, left, right


class Weir:
    """The actions of Weir, through the program `release-actions`."""

    def __init__(self, kubeconfig):
        program = os.path.join(os.environ["WEIR_BIN_DIR"], "release-actions")
        environment = {**os.environ, "KUBECONFIG": kubeconfig}
        self.manager = None
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def __call__(self, action, **request):
        self.process.stdin.write(json.dumps({"action": action, "manager": self.manager, **request}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("release-actions ended")
        return json.loads(answer)["error"]
