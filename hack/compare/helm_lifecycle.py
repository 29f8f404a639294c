"""Takes charts through install, upgrade, rollback and uninstall by Helm and by Weir. Run by hack/compare/helm-lifecycle."""

import json
import os
import sys
import tempfile

import helmlib
from helm_python import Chart, Config, HelmError

TIMEOUT_SECONDS = 60
RELEASE = "app"
# What is compared after each step.
PARTS = ("objects", "records", "hooks", "reads")
STEPS = ("install", "upgrade", "rollback", "uninstall")
VALUES = {"upgrade": {"podAnnotations": {"weir.dev/changed": "yes"}}}


class Helm:
    def __init__(self, kubeconfig):
        self.kubeconfig = kubeconfig

    def __call__(self, action, namespace, release, chart=None, values=None, version=None):
        try:
            with Config(kubeconfig_path=self.kubeconfig, namespace=namespace) as config:
                options = {"namespace": namespace, "timeout": TIMEOUT_SECONDS}
                if action == "install":
                    config.install(Chart.load(chart), release, values, **options)
                elif action == "upgrade":
                    config.upgrade(Chart.load(chart), release, values, **options)
                elif action == "rollback":
                    config.rollback(release, version=version, timeout=TIMEOUT_SECONDS)
                else:
                    config.uninstall(release, timeout=TIMEOUT_SECONDS)
        except HelmError as error:
            return str(error)
        return None

    def reads(self, namespace, release):
        """What Helm reads of a release: list, history, values, manifest."""
        with Config(kubeconfig_path=self.kubeconfig, namespace=namespace) as config:
            listed = config.list(all_states=True)
            if not listed:
                return {"list": []}
            found = {
                "list": listed,
                "history": config.history(release),
                "values": config.get_values(release),
                "all": config.get_all(release),
            }
        text = json.dumps(found).replace(namespace, "NAMESPACE")
        return json.loads(helmlib.TIMES.sub("TIME", text))


def packed(directory, scratch):
    """Old and new version of a chart as archives."""
    found = []
    for name in ("old", "new"):
        place = os.path.join(scratch, name)
        os.makedirs(place)
        folder = os.path.join(directory, name)
        found.append(Chart.load(folder if os.path.isdir(folder) else directory).save(place))
    return found


def run(api, engines, pattern, namespace, archives):
    """One life of a release; what there was after each step."""
    before = helmlib.names(api)
    api.create_namespace(namespace)
    seen = []
    try:
        for step, engine in zip(STEPS, pattern):
            request = {"namespace": namespace, "release": RELEASE}
            if step in ("install", "upgrade"):
                request |= {"chart": archives[step == "upgrade"], "values": VALUES.get(step, {})}
            if step == "rollback":
                request["version"] = 1
            error = engines[engine](step, **request)
            # As another manager, Helm would be refused the fields that Weir applied, and Weir those of Helm.
            if step == "install" and engine == "h":
                engines["w"].manager = helmlib.manager(api, namespace)
            stored = helmlib.records(api, namespace, RELEASE)
            seen.append({
                "error": error,
                "objects": helmlib.objects(api, namespace, before),
                "records": [helmlib.comparable(entry, namespace) for entry in stored],
                "hooks": [helmlib.hook_order(entry) for entry in stored],
                "reads": engines["h"].reads(namespace, RELEASE),
            })
    finally:
        for group, plural, name in helmlib.names(api) - before:
            # The preferred version serves for deletions.
            for prefix, known, _, _ in api.resources():
                if known == plural and (prefix.split("/")[2] if prefix.startswith("/apis") else "") == group:
                    api.delete(f"{prefix}/{plural}/{name}")
        api.delete(f"/api/v1/namespaces/{namespace}")
    return seen


def compare(reference, other, random):
    """What differs, step by step; random places are those in which two runs of the reference differ."""
    found = []
    for step, left, right, places in zip(STEPS, reference, other, random):
        if (left["error"] is None) != (right["error"] is None):
            found.append((step, "outcome", left["error"], right["error"]))
        for part in PARTS:
            for path, one, two in helmlib.differences(left[part], right[part]):
                if (part, path) not in places and not any(p == part and path.startswith(q) for p, q in places):
                    found.append((step, part + path, one, two))
    return found


def is_message_only(difference):
    """A text of a failure that says the same in other words."""
    return difference[1].endswith(".description")


def random_places(first, second):
    return [
        {(part, path) for part in PARTS
         for path, _, _ in helmlib.differences(left[part], right[part])}
        for left, right in zip(first, second)
    ]


def main():
    arguments = sys.argv[1:]
    mixed = "--mixed" in arguments
    verbose = "--verbose" in arguments
    kubeconfig, *directories = [argument for argument in arguments if not argument.startswith("--")]
    api = helmlib.Api(kubeconfig)
    engines = {"h": Helm(kubeconfig), "w": helmlib.Weir(kubeconfig)}
    patterns = ["hwhw", "whwh"] if mixed else ["wwww"]
    totals = {"equal": 0, "differs": 0, "fails alike": 0}
    print("| chart | objects | hooks run | steps | " + " | ".join(patterns) + " |")
    print("| --- | --- | --- | --- |" + " --- |" * len(patterns))
    run_id = f"{os.getpid() % 10000:04}"
    for number, directory in enumerate(directories):
        title = os.path.basename(directory.rstrip("/"))
        with tempfile.TemporaryDirectory() as scratch:
            try:
                archives = packed(directory, scratch)
            except HelmError as error:
                print(f"| {title} | | | does not load: {str(error)[:80]} |" + " |" * len(patterns), flush=True)
                continue
            namespace = f"lc{run_id}-{number:03}"
            reference = run(api, engines, "hhhh", f"{namespace}-a", archives)
            if "dependencies are missing" in (reference[0]["error"] or ""):
                print(f"| {title} | | | its dependencies are missing |" + " |" * len(patterns), flush=True)
                continue
            random, cells = [set()] * len(STEPS), []
            for position, pattern in enumerate(patterns):
                other = run(api, engines, pattern, f"{namespace}-{'bc'[position]}", archives)
                found = compare(reference, other, random)
                if found and not any(random):
                    second = run(api, engines, "hhhh", f"{namespace}-d", archives)
                    random = random_places(reference, second)
                    found = compare(reference, other, random)
                told = [difference for difference in found if not is_message_only(difference)]
                installed = reference[0]["error"] is None and reference[1]["error"] is None
                outcome = "differs" if told else "equal" if installed else "fails alike"
                totals[outcome] += 1
                cells.append(outcome if not found or told else f"{outcome}, other words in a message")
                for step, path, one, two in (found if verbose else told)[:6]:
                    print(f"    {pattern} {step} {path}\n      helm: {str(one)[:600]}\n      weir: {str(two)[:600]}", file=sys.stderr, flush=True)
            steps = " ".join("ok" if step["error"] is None else "failed" for step in reference)
            hooks = sum(len(order) for order in reference[2]["hooks"])
            print(f"| {title} | {len(reference[0]['objects'])} | {hooks} | {steps} | " + " | ".join(cells) + " |", flush=True)
            for step, entry in zip(STEPS, reference):
                if entry["error"]:
                    print(f"    {title} {step}: {entry['error'][:300]}", file=sys.stderr, flush=True)
    print(", ".join(f"{count} {name}" for name, count in totals.items()))
    sys.exit(totals["differs"] > 0)


if __name__ == "__main__":
    main()
