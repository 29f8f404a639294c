# The Helm SDK for scripts that compare with Helm. Sourced, not run.
# shellcheck shell=bash

# Sets PYTHON to an interpreter that has the Helm SDK and PyYAML; says so and fails when there is none to be had.
ensure_helm_sdk() {
  if [ -z "${PYTHON:-}" ]; then
    local environment=$WEIR_CACHE/helm-sdk
    [ -x "$environment/bin/python" ] || python3 -m venv "$environment" || { echo "SKIPPED: no python3 -m venv" >&2; return 1; }
    PYTHON=$environment/bin/python
  fi
  if ! "$PYTHON" -c 'import helm_python, yaml' 2>/dev/null &&
    ! "$PYTHON" -m pip install --quiet 'helm-python-sdk>=0.2' pyyaml >&2; then
    echo "SKIPPED: the Helm SDK cannot be installed from PyPI" >&2
    return 1
  fi
  export PYTHON
}
