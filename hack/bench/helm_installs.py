"""Installs one chart many times with the Helm SDK, some at a time: KUBECONFIG CHART COUNT CONCURRENCY."""

import concurrent.futures
import json
import resource
import sys
import time

from helm_python import Config

kubeconfig, chart, count, workers = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def install(number):
    with Config(kubeconfig_path=kubeconfig, namespace="bare", qps=1000, burst_limit=1000) as config:
        config.install(chart, f"app-{number:04}", {}, namespace="bare", chart_version="1.0.0", plain_http=True,
                       wait="watcher", timeout=300)


started = time.monotonic()
with concurrent.futures.ThreadPoolExecutor(workers) as pool:
    list(pool.map(install, range(count)))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": time.monotonic() - started, "mebibytes": peak // 1024}))
