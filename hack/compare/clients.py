"""Drives the Helm SDK and the Python client against one API server. Run by hack/compare/clients."""

import pathlib
import sys
import time

from helm_python import Chart, Config
from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

TIMEOUT_SECONDS = 90


def until(what, condition):
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)


def gone(read):
    try:
        read()
    except ApiException as error:
        return error.status == 404
    return False


def use_helm(kubeconfig, core, directory):
    """Install, upgrade, roll back and uninstall; says how many objects the chart has."""
    name = pathlib.Path(directory).resolve().name[:40]
    namespace = f"clients-{name}"
    core.create_namespace({"metadata": {"name": namespace}})
    try:
        helm = Config(kubeconfig_path=kubeconfig, namespace=namespace)
        chart = Chart.load(directory)
        release = helm.install(chart, name, {}, namespace=namespace)
        assert release["status"] == "deployed", release["status"]
        objects = release["manifest"].count("\nkind:")
        upgraded = helm.upgrade(chart, name, {"podAnnotations": {"changed": "yes"}}, namespace=namespace)
        assert upgraded["revision"] == 2, {key: upgraded[key] for key in upgraded if key != "manifest"}
        helm.rollback(name, version=1)
        history = helm.history(name)
        statuses = sorted((entry["revision"], entry["status"]) for entry in history)
        assert statuses == [(1, "superseded"), (2, "superseded"), (3, "deployed")], statuses
        helm.uninstall(name)
        assert helm.list() == [], helm.list()
        secrets = core.list_namespaced_secret(namespace, label_selector="owner=helm").items
        assert not secrets, [secret.metadata.name for secret in secrets]
    finally:
        core.delete_namespace(namespace)
    return f"{objects} objects"


def use_python(kubeconfig, core):
    """The typed and the dynamic client."""
    namespace = "clients-python"
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=namespace)))
    try:
        body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a"), data={"x": "1"})
        made = core.create_namespaced_config_map(namespace, body)
        core.patch_namespaced_config_map("a", namespace, {"data": {"x": "2"}})
        made.data = {"x": "3"}
        try:
            core.replace_namespaced_config_map("a", namespace, made)
            raise AssertionError("a stale object was written")
        except ApiException as error:
            assert error.status == 409, error
        events = watch.Watch()
        seen = []
        for event in events.stream(
            core.list_namespaced_config_map,
            namespace,
            field_selector="metadata.name=a",
            resource_version=made.metadata.resource_version,
            timeout_seconds=TIMEOUT_SECONDS,
        ):
            seen.append((event["type"], event["object"].data))
            events.stop()
        assert seen == [("MODIFIED", {"x": "2"})], seen

        apps = client.AppsV1Api()
        labels = {"app": "web"}
        apps.create_namespaced_deployment(
            namespace,
            client.V1Deployment(
                metadata=client.V1ObjectMeta(name="web"),
                spec=client.V1DeploymentSpec(
                    replicas=1,
                    selector=client.V1LabelSelector(match_labels=labels),
                    template=client.V1PodTemplateSpec(
                        metadata=client.V1ObjectMeta(labels=labels),
                        spec=client.V1PodSpec(containers=[client.V1Container(name="c", image="c:1")]),
                    ),
                ),
            ),
        )
        until(
            "the deployment is ready",
            lambda: apps.read_namespaced_deployment("web", namespace).status.ready_replicas == 1,
        )
        apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 0}})
        assert apps.read_namespaced_deployment_scale("web", namespace).spec.replicas in (None, 0)

        dynamic_client = dynamic.DynamicClient(config.new_client_from_config(kubeconfig))
        maps = dynamic_client.resources.get(api_version="v1", kind="ConfigMap")
        applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"x": "1"}}
        maps.server_side_apply(body=applied, namespace=namespace, field_manager="clients")
        assert maps.get(name="b", namespace=namespace).data.x == "1"
        review = client.AuthorizationV1Api().create_self_subject_access_review(
            {"spec": {"resourceAttributes": {"namespace": namespace, "verb": "get", "resource": "pods"}}}
        )
        assert review.status.allowed, review
        version = client.VersionApi().get_code().git_version
    finally:
        core.delete_namespace(namespace)
    until("the namespace is gone", lambda: gone(lambda: core.read_namespace(namespace)))
    return f"server {version}"


def main():
    kubeconfig, charts = sys.argv[1], sys.argv[2:]
    config.load_kube_config(kubeconfig)
    core = client.CoreV1Api()
    steps = [("Python client", lambda: use_python(kubeconfig, core))]
    for chart in charts:
        steps.append((f"Helm {chart}", lambda chart=chart: use_helm(kubeconfig, core, chart)))
    failed = 0
    for name, step in steps:
        started = time.monotonic()
        try:
            what = step()
        except Exception as error:  # Every step is tried, whatever failed before.
            failed += 1
            print(f"FAILED {name}: {type(error).__name__}: {error}")
        else:
            print(f"ok     {name}: {what} in {time.monotonic() - started:.1f}s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
