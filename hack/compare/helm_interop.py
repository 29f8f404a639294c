"""Exchanges releases between helm-controller and the helm command. Run by hack/compare/helm-interop."""

import functools
import hashlib
import http.server
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

import helmlib
import yaml

DEADLINE_SECONDS = 90
RELEASE = "app"
# The labels by which a HelmRelease marks what it applies.
OWN_LABELS = ("helm.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/namespace")
RELEASES = "/apis/helm.toolkit.fluxcd.io/v2"
SOURCES = "/apis/source.toolkit.fluxcd.io/v1"
CHART = {
    "Chart.yaml": "apiVersion: v2\nname: web\nversion: {version}\nappVersion: '{version}'\ndescription: a chart\n",
    "values.yaml": "color: blue\nreplicas: 0\n",
    "templates/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n"
    "data:\n  color: {{ .Values.color }}\n  revision: {{ .Release.Revision | quote }}\n",
    "templates/service.yaml": "apiVersion: v1\nkind: Service\nmetadata:\n  name: {{ .Release.Name }}\n"
    "spec:\n  selector: {app: {{ .Release.Name }}}\n  ports: [{name: http, port: 80, protocol: TCP, targetPort: 8080}]\n",
    "templates/deployment.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}\n"
    "spec:\n  replicas: {{ .Values.replicas }}\n  selector: {matchLabels: {app: {{ .Release.Name }}}}\n"
    "  template:\n    metadata: {labels: {app: {{ .Release.Name }}}}\n"
    "    spec: {containers: [{name: web, image: registry.example.com/web}]}\n",
    "templates/hook.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-before\n"
    "  annotations: {helm.sh/hook: 'pre-install,pre-upgrade', helm.sh/hook-weight: '-1'}\n",
    "templates/NOTES.txt": "{{ .Release.Name }} is {{ .Values.color }}\n",
}

checks = {"passed": 0, "failed": 0}


def check(name, left, right):
    """Both have to be equal."""
    differences = list(helmlib.differences(left, right))
    checks["failed" if differences else "passed"] += 1
    print(f"{'FAILED' if differences else 'passed'}  {name}", flush=True)
    for path, one, two in differences[:8]:
        print(f"    {path}\n      expected: {str(one)[:500]}\n      found:    {str(two)[:500]}", flush=True)


class World:
    """The API server, helm-controller on it, a server of charts, and the helm command."""

    def __init__(self, kubeconfig, scratch):
        self.kubeconfig, self.scratch = kubeconfig, scratch
        self.api = helmlib.Api(kubeconfig)
        self.environment = {**os.environ, "KUBECONFIG": kubeconfig, "HELM_CACHE_HOME": f"{scratch}/cache"}
        handler = functools.partial(Quiet, directory=scratch)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def install_definitions(self):
        for path in sorted(pathlib.Path("crds").glob("*toolkit.fluxcd.io.yaml")):
            definition = yaml.safe_load(path.read_text(encoding="utf-8"))
            name = definition["metadata"]["name"]
            self.api.apply(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", definition)
        self.until(lambda: self.api.find(f"{RELEASES}/helmreleases") is not None, "definitions")
        self.until(lambda: self.api.find(f"{SOURCES}/helmcharts") is not None, "definitions")

    def start_controller(self):
        program = os.path.join(os.environ["WEIR_BIN_DIR"], "helm-controller")
        with open(f"{self.scratch}/controller.log", "w", encoding="utf-8") as log:
            self.controller = subprocess.Popen(
                [program, f"--metrics-addr={free()}", f"--health-addr={free()}", "--interval-jitter-percentage=0"],
                env=self.environment, stdout=log, stderr=log)

    def until(self, found, what):
        end = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < end:
            result = found()
            if result:
                return result
            time.sleep(0.2)
        raise RuntimeError(f"timed out: {what}\n{pathlib.Path(self.scratch, 'controller.log').read_text()[-3000:]}")

    def helm(self, *arguments, namespace):
        done = subprocess.run([os.environ["HELM"], *arguments, "--namespace", namespace], env=self.environment,
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"helm {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def package(self, version):
        folder = pathlib.Path(self.scratch, version, "web")
        for name, text in CHART.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{version}", version) if name == "Chart.yaml" else text, encoding="utf-8")
        self.helm("package", str(folder), "--destination", self.scratch, namespace="default")
        return f"{self.scratch}/web-{version}.tgz"

    def publish(self, namespace, version):
        """Makes a packaged chart the artifact of the HelmChart."""
        archive = pathlib.Path(self.scratch, f"web-{version}.tgz").read_bytes()
        path = f"{SOURCES}/namespaces/{namespace}/helmcharts/web"
        chart = {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart",
                 "metadata": {"name": "web", "namespace": namespace},
                 "spec": {"chart": "web", "interval": "1h", "sourceRef": {"kind": "HelmRepository", "name": "none"}}}
        generation = self.api.apply(path, chart)["metadata"]["generation"]
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        status = {"observedGeneration": generation,
                  "artifact": {"url": f"http://127.0.0.1:{self.server.server_port}/web-{version}.tgz", "path": "web",
                               "revision": version, "digest": f"sha256:{hashlib.sha256(archive).hexdigest()}",
                               "lastUpdateTime": now, "size": len(archive)},
                  "conditions": [{"type": "Ready", "status": "True", "reason": "ChartPullSucceeded", "message": "",
                                  "lastTransitionTime": now, "observedGeneration": generation}]}
        self.api.apply(f"{path}/status", {**chart, "status": status})

    def describe(self, namespace, values, **spec):
        """Applies the HelmRelease and waits until it is ready for its generation."""
        path = f"{RELEASES}/namespaces/{namespace}/helmreleases/{RELEASE}"
        release = {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
                   "metadata": {"name": RELEASE, "namespace": namespace},
                   "spec": {"interval": "1h", "chartRef": {"kind": "HelmChart", "name": "web"}, "values": values, **spec}}
        self.api.apply(path, release)
        return self.settled(namespace)

    def settled(self, namespace, handled=None):
        def look():
            release = self.api.find(f"{RELEASES}/namespaces/{namespace}/helmreleases/{RELEASE}")
            status = release.get("status", {})
            ready = [c for c in status.get("conditions", []) if c["type"] == "Ready"]
            if handled and status.get("lastHandledReconcileAt") != handled:
                return None
            observed = status.get("observedGeneration") == release["metadata"]["generation"]
            return release if observed and ready and ready[0]["status"] == "True" else None
        return self.until(look, f"HelmRelease {namespace}/{RELEASE}")

    def request(self, namespace):
        """Asks for a run and waits for it."""
        token = str(time.time_ns())
        path = f"{RELEASES}/namespaces/{namespace}/helmreleases/{RELEASE}"
        patch = {"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": token}}}
        self.api.request("PATCH", path, patch, "application/merge-patch+json")
        return self.settled(namespace, token)

    def records(self, namespace):
        return [plain(helmlib.comparable(entry, namespace)) for entry in helmlib.records(self.api, namespace, RELEASE)]

    def reads(self, namespace):
        """What helm reads of the release, comparable between namespaces."""
        history = json.loads(self.helm("history", RELEASE, "--output", "json", namespace=namespace))
        listed = json.loads(self.helm("list", "--output", "json", namespace=namespace))
        for entry in history + listed:
            entry.pop("updated")
        texts = {name: self.helm("get", name, RELEASE, namespace=namespace) for name in ("manifest", "hooks", "notes")}
        found = {"history": history, "list": listed, "notes": texts["notes"],
                 "values": json.loads(self.helm("get", "values", RELEASE, "--output", "json", namespace=namespace)),
                 "manifest": documents(texts["manifest"]), "hooks": documents(texts["hooks"]),
                 "metadata": json.loads(self.helm("get", "metadata", RELEASE, "--output", "json", namespace=namespace))}
        for key in ("deployedAt", "labels"):
            found["metadata"].pop(key, None)
        return json.loads(json.dumps(found).replace(namespace, "NAMESPACE"))

    def states(self, namespace):
        return [f"{e['revision']}:{e['status']}"
                for e in json.loads(self.helm("history", RELEASE, "--output", "json", namespace=namespace))]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def free():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def documents(text):
    """The objects of a manifest in their order, without the labels of a HelmRelease."""
    found = [document for document in yaml.safe_load_all(text) if document]
    for document in found:
        labels = document["metadata"].get("labels", {})
        for label in OWN_LABELS:
            labels.pop(label, None)
        if not labels:
            document["metadata"].pop("labels", None)
    return found


def plain(entry):
    """A record whose manifests are objects instead of texts: a HelmRelease labels them."""
    record = entry["record"]
    record["manifest"] = documents(record["manifest"])
    for hook in record.get("hooks") or []:
        hook["manifest"] = documents(hook["manifest"])
    return entry


def run(world):
    world.install_definitions()
    for version in ("1.0.0", "1.1.0"):
        world.package(version)
    number = int(time.time()) % 10000
    made, plain_helm, adopted = (f"io{number:04}-{name}" for name in ("weir", "helm", "both"))
    for namespace in (made, plain_helm, adopted):
        world.api.create_namespace(namespace)
    world.start_controller()
    first, second = {"color": "green", "list": [1, "two", {"k": 1.5}]}, {"color": "red"}

    # The same release by each.
    world.publish(made, "1.0.0")
    world.describe(made, first)
    values = f"{world.scratch}/values.json"
    pathlib.Path(values).write_text(json.dumps(first), encoding="utf-8")
    chart = f"{world.scratch}/web-1.0.0.tgz"
    world.helm("install", RELEASE, chart, "--values", values, "--wait", namespace=plain_helm)
    check("records after the installation are equal, field by field", world.records(plain_helm), world.records(made))
    check("helm reads the same of both", world.reads(plain_helm), world.reads(made))

    # An upgrade to another chart, and one to other values.
    world.publish(made, "1.1.0")
    world.until(lambda: world.states(made)[-1] == "2:deployed", "the upgrade to another chart")
    world.describe(made, second)
    world.until(lambda: world.states(made)[-1] == "3:deployed", "the upgrade to other values")
    chart = f"{world.scratch}/web-1.1.0.tgz"
    for changed in (first, second):
        pathlib.Path(values).write_text(json.dumps(changed), encoding="utf-8")
        world.helm("upgrade", RELEASE, chart, "--reset-values", "--values", values, "--wait", namespace=plain_helm)
    check("records after two upgrades are equal, field by field", world.records(plain_helm), world.records(made))
    check("helm reads the same of both after two upgrades", world.reads(plain_helm), world.reads(made))
    last = 3

    # helm rolls back; the next run brings back what the HelmRelease says. Its fields are those of helm-controller, as with
    # the reference, so helm has to be told to take them.
    world.helm("rollback", RELEASE, "1", "--wait", "--force-conflicts", namespace=made)
    check("helm rolls back a release of helm-controller", f"{last + 1}:deployed", world.states(made)[-1])
    found = world.request(made)
    check("the HelmRelease upgrades what was rolled back", f"{last + 2}:deployed", world.states(made)[-1])
    history = [f"{s['version']}:{s['status']}" for s in found["status"]["history"]]
    check("its history starts over", [f"{last + 2}:deployed"], history)
    color = world.api.request("GET", f"/api/v1/namespaces/{made}/configmaps/{RELEASE}")["data"]["color"]
    check("the objects are those of the HelmRelease", "red", color)
    world.request(made)
    check("another run changes nothing", f"{last + 2}:deployed", world.states(made)[-1])

    # helm uninstalls; the next run installs.
    world.helm("uninstall", RELEASE, "--wait", namespace=made)
    gone = world.api.find(f"/api/v1/namespaces/{made}/configmaps/{RELEASE}")
    check("helm uninstalls a release of helm-controller", (None, []), (gone, helmlib.records(world.api, made, RELEASE)))
    world.request(made)
    check("the HelmRelease installs it again", ["1:deployed"], world.states(made))

    # A release that helm made, taken over by a HelmRelease of the same name, chart and values.
    pathlib.Path(values).write_text(json.dumps(first), encoding="utf-8")
    world.helm("install", RELEASE, f"{world.scratch}/web-1.0.0.tgz", "--values", values, "--wait", namespace=adopted)
    before = world.api.request("GET", f"/apis/apps/v1/namespaces/{adopted}/deployments/{RELEASE}")["metadata"]["uid"]
    world.publish(adopted, "1.0.0")
    found = world.describe(adopted, first)
    after = world.api.request("GET", f"/apis/apps/v1/namespaces/{adopted}/deployments/{RELEASE}")["metadata"]["uid"]
    # The reference knows a release by its history alone: what it did not make itself is upgraded once.
    check("a release of helm is taken over by one upgrade", ["1:superseded", "2:deployed"], world.states(adopted))
    check("its objects stay", before, after)
    check("its history is that upgrade", ["2:deployed"],
          [f"{s['version']}:{s['status']}" for s in found["status"]["history"]])
    world.request(adopted)
    check("and nothing more", ["1:superseded", "2:deployed"], world.states(adopted))
    # helm goes on with it: an upgrade by hand is seen and put right.
    world.helm("upgrade", RELEASE, f"{world.scratch}/web-1.1.0.tgz", "--reset-values", "--wait", "--force-conflicts",
               namespace=adopted)
    check("helm upgrades it", "3:deployed", world.states(adopted)[-1])
    world.request(adopted)
    check("the HelmRelease puts that right", "4:deployed", world.states(adopted)[-1])

    # The HelmReleases go, and their releases with them.
    for namespace in (made, adopted):
        path = f"{RELEASES}/namespaces/{namespace}/helmreleases/{RELEASE}"
        world.api.delete(path)
        world.until(lambda path=path: world.api.find(path) is None, "the deletion")
        check(f"nothing is left of {namespace.split('-')[1]}", "[]",
              re.sub(r"\s", "", world.helm("list", "--output", "json", namespace=namespace)))
    for namespace in (made, plain_helm, adopted):
        world.api.delete(f"/api/v1/namespaces/{namespace}")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        world = World(sys.argv[1], scratch)
        try:
            run(world)
        finally:
            if hasattr(world, "controller"):
                world.controller.terminate()
                world.controller.wait()
            world.server.shutdown()
    print(", ".join(f"{count} {name}" for name, count in checks.items()))
    sys.exit(checks["failed"] > 0)


if __name__ == "__main__":
    main()
