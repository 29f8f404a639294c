# Shared by the scripts in hack/: installs what a fresh Debian-like machine lacks. Sourced, not run.
# shellcheck shell=bash

WEIR_CACHE=${WEIR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weir}
export WEIR_CACHE
mkdir -p "$WEIR_CACHE"

# install_packages PACKAGE...: Debian packages that are not there yet.
install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || { echo "please install: ${missing[*]}" >&2; return 1; }
  local sudo=()
  [ "$(id -u)" = 0 ] || sudo=(sudo)
  echo "installing ${missing[*]}" >&2
  "${sudo[@]}" apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# The compiler and linker, git, and cargo (by rustup, only if there is none).
ensure_build_tools() {
  local missing=()
  command -v cc >/dev/null || missing+=(gcc libc6-dev)
  command -v git >/dev/null || missing+=(git)
  command -v curl >/dev/null || missing+=(curl ca-certificates)
  [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
  if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
    export PATH="$HOME/.cargo/bin:$PATH"
  fi
  if ! command -v cargo >/dev/null; then
    echo "installing Rust with rustup" >&2
    if ! curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal --component clippy,rustfmt >/dev/null; then
      echo "no cargo, and rustup could not be installed; install Rust 1.95 or newer and run this again" >&2
      return 1
    fi
    export PATH="$HOME/.cargo/bin:$PATH"
  fi
}

# cargo-deny, built once into the cache.
ensure_cargo_deny() {
  local version=0.20.2
  command -v cargo-deny >/dev/null && return 0
  export PATH="$WEIR_CACHE/tools/bin:$PATH"
  command -v cargo-deny >/dev/null && return 0
  echo "building cargo-deny $version" >&2
  cargo install --quiet --locked --root "$WEIR_CACHE/tools" --version "$version" cargo-deny
}

# What tests of sources start and sign with: an SSH server, ssh-keygen, GnuPG, a registry. Some say that they are skipped
# without them, the others fail.
ensure_source_test_tools() {
  local missing=()
  [ -x /usr/sbin/sshd ] || missing+=(openssh-server)
  command -v ssh-keygen >/dev/null || missing+=(openssh-client)
  command -v gpg >/dev/null && command -v gpg-agent >/dev/null || missing+=(gnupg)
  command -v docker-registry >/dev/null || missing+=(docker-registry)
  [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
}

# What the real API server for tests and the Git server of the scenarios need.
ensure_testenv_packages() {
  local missing=()
  command -v git >/dev/null || missing+=(git)
  command -v python3 >/dev/null || missing+=(python3 python3-venv)
  [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
}

# with_testenv COMMAND...: runs COMMAND with KUBECONFIG of a real API server: the one that is set, or a
# hack/testenv of its own that is removed afterwards.
with_testenv() {
  if [ -n "${KUBECONFIG:-}" ]; then
    "$@"
    return
  fi
  local state status=0
  state=$(mktemp -d "${TMPDIR:-/tmp}/weir-testenv.XXXXXX")
  hack/testenv/testenv --state-dir "$state" start >/dev/null
  KUBECONFIG=$state/kubeconfig "$@" || status=$?
  hack/testenv/testenv --state-dir "$state" delete || true
  rm -rf "$state"
  return "$status"
}

ensure_build_tools
