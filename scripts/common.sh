# shellcheck shell=bash
# Sourced by every script of this folder (`. "$(dirname "$0")/common.sh"`): what they share to
# bring a host from a bare checkout to one that can run or test hive. Every function may be called
# again at any time and then does only what is still missing.

set -euo pipefail

# sudo and cron leave the administration tools out of PATH; iptables, useradd and dockerd live there.
export PATH="$PATH:/usr/sbin:/sbin"

HIVE_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
HIVE_VENV="$HIVE_ROOT/.venv"

# Progress goes to stderr, so that a script whose stdout is an answer may call anything in here.
say() { printf '==> %s\n' "$*" >&2; }

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

need_root() {
    [ "$(id -u)" -eq 0 ] || fail "$(basename "$0") must run as root: sudo $0"
}

_has_package() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# apt_need PKG...: installs the packages that are missing; asks the archive only if one is.
apt_need() {
    local package missing=()
    for package in "$@"; do
        _has_package "$package" || missing+=("$package")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    command -v apt-get >/dev/null || fail "cannot install ${missing[*]}: this host has no apt-get; install them by hand"
    need_root
    say "installing ${missing[*]}"
    # Another apt (unattended upgrades on a fresh host) may hold the lock for a while.
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
    local log
    log="$(mktemp)"
    if ! { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
        tail -n 30 "$log" >&2
        rm -f "$log"
        fail "cannot install ${missing[*]}: apt-get failed, see above"
    fi
    rm -f "$log"
}

# need_engine: the engine's programs, whoever packaged them: docker.io would evict docker-ce.
need_engine() {
    command -v dockerd >/dev/null || apt_need docker.io
}

# The first interpreter that is new enough; a distribution's python3 may be older than one beside it.
_find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

# What a virtual environment is tied to: its own place, the interpreter below it, the machine.
_venv_identity() {
    "$HIVE_VENV/bin/python" -I -c '
import os, platform, sys
print(sys.prefix, os.path.realpath(sys.executable), platform.python_version(), platform.machine())' 2>/dev/null
}

_venv_is_ours() {
    [ ! -L "$HIVE_VENV" ] && [ -r "$HIVE_VENV/.hive-identity" ] || return 1
    local now
    now="$(_venv_identity)" || return 1
    [ "$now" = "$(cat "$HIVE_VENV/.hive-identity")" ] && [ "${now%% *}" = "$HIVE_VENV" ]
}

# new_venv DIR [OPTION]...: an empty virtual environment of the first interpreter that is new enough.
new_venv() {
    local python
    python="$(_find_python)" || fail "cannot make $1: no Python 3.11 or later found"
    say "making $1 with $("$python" -V)"
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        # Debian keeps ensurepip apart from its python3.
        apt_need "$("$python" -c 'import sys; print(f"python3.{sys.version_info[1]}-venv")')"
    fi
    rm -rf "$1"
    "$python" -m venv "${@:2}" "$1" || fail "cannot make $1: see above"
}

_create_venv() {
    new_venv "$HIVE_VENV"
    _venv_identity >"$HIVE_VENV/.hive-identity"
}

# _install_once STAMP FILE PIP-ARGUMENTS...: runs pip unless it succeeded before with this very FILE.
_install_once() {
    local stamp="$HIVE_VENV/.hive-$1" sum
    sum="$(sha256sum <"$2")"
    shift 2
    [ "$sum" != "$(cat "$stamp" 2>/dev/null)" ] || return 0
    say "pip install ${*: -1}"
    "$HIVE_VENV/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --no-deps "$@" >&2 ||
        fail "cannot fill .venv: pip failed, see above"
    printf '%s\n' "$sum" >"$stamp"
}

_fill_venv() {
    _venv_is_ours || _create_venv
    local name=requirements
    [ "${1-}" != --dev ] || name=requirements-dev
    # The development pins contain the runtime pins, so both stamps hold after a --dev install; a
    # runtime install over a development one would be harmless, but slow.
    _install_once "$name" "$HIVE_ROOT/$name.txt" --require-hashes --only-binary=:all: -r "$HIVE_ROOT/$name.txt"
    [ "$name" = requirements ] || sha256sum <"$HIVE_ROOT/requirements.txt" >"$HIVE_VENV/.hive-requirements"
    _install_once project "$HIVE_ROOT/pyproject.toml" --no-build-isolation --editable "$HIVE_ROOT"
}

# make_venv [--dev]: .venv with the pinned packages and the project itself, editable. A .venv that
# was copied here, or whose interpreter has changed since, is made anew.
make_venv() {
    # One at a time: `up` and `test` may run side by side. The lock is on the checkout's directory,
    # so nothing is left behind.
    (
        flock 9
        _fill_venv "$@" 9<&-
    ) 9<"$HIVE_ROOT"
}

# ensure_group NAME: a system group.
ensure_group() {
    getent group "$1" >/dev/null && return 0
    need_root
    say "adding group $1"
    groupadd --system "$1"
}

# ensure_user NAME: a system user with a group of its own, no login and no home.
ensure_user() {
    getent passwd "$1" >/dev/null && return 0
    need_root
    say "adding user $1"
    local group=(--user-group)
    ! getent group "$1" >/dev/null || group=(--gid "$1")
    useradd --system "${group[@]}" --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$1"
}

# prepare_tests: everything that `scripts/test` and `scripts/bench` share, up to a built agent image.
# It starts no engine: tests start one of their own, in a network namespace of its own.
prepare_tests() {
    need_root
    apt_need git iproute2 iptables mmdebstrap systemd util-linux
    need_engine
    make_venv --dev
    ensure_group hive
    ensure_user hive-git
    local image
    image="$("$HIVE_ROOT/scripts/build-image" | tail -n 1)" || fail "cannot prepare the tests: building the agent image failed"
    say "agent image: $image"
    # A test must never reach the hive of the person who runs it.
    unset HIVE_ADMIN_SOCKET HIVE_SOCKET
    cd "$HIVE_ROOT"
}
