# shellcheck shell=bash disable=SC2034  # the places are for those who source this
# Sourced by scripts/install and scripts/uninstall, after common.sh and demo.sh: where an installation has its
# parts, and whose daemon it is that runs.
#
# HIVE_INSTALL_ROOT=DIR redirects every path below DIR, for tests and for a look before the real thing. The
# rest of the host is then left alone: packages, accounts, the engine, systemd.

ROOT="${HIVE_INSTALL_ROOT-}"
[ -z "$ROOT" ] || ROOT="$(realpath -e "$ROOT")" || fail "HIVE_INSTALL_ROOT must be a directory"
[ "$ROOT" != / ] || ROOT=''

CTL_LINK="$ROOT/usr/local/bin/hivectl"
DAEMON_LINK="$ROOT/usr/local/sbin/hived"
SETTINGS="$ROOT/etc/hive/hive.toml"
UNIT="$ROOT/etc/systemd/system/hived.service"
COMPLETION="$ROOT/usr/share/bash-completion/completions/hivectl"

is_redirected() { [ -n "$ROOT" ]; }

# installed_prefix: where an installation is, or would be. The daemon's link knows.
installed_prefix() {
    local target
    target="$(readlink "$DAEMON_LINK" 2>/dev/null || true)"
    case "$target" in
        */current/bin/hived) printf '%s\n' "${target%/current/bin/hived}" ;;
        *) printf '%s\n' "$ROOT/opt/hive" ;;
    esac
}

# versions: the directories below the prefix that an installation made.
versions() {
    [ -d "$PREFIX" ] || return 0
    find "$PREFIX" -mindepth 1 -maxdepth 1 -type d -regextype posix-extended \
        -regex '.*/[0-9][^/]*-[0-9a-f]{12}' | sort
}

# data_directory: paths.data of the settings, read without the packages that are perhaps not there yet.
data_directory() {
    local python
    if [ ! -e "$SETTINGS" ] || ! python="$(_find_python)"; then
        printf '%s\n' "$ROOT/var/lib/hive"
        return 0
    fi
    "$python" -I - "$SETTINGS" "$ROOT/var/lib/hive" <<'PY' || fail "cannot use $SETTINGS, see above"
import sys, tomllib
try:
    with open(sys.argv[1], "rb") as file:
        paths = tomllib.load(file).get("paths", {})
    print(paths.get("data", sys.argv[2]))
except (OSError, ValueError, AttributeError) as fault:
    sys.exit(f"{sys.argv[1]}: {fault}")
PY
}

# interpreter_of PID: the program its command line begins with. For a hived of an installation that is the
# interpreter of the version it runs, also when `current` has moved on since.
interpreter_of() {
    [ -n "$1" ] && [ -r "/proc/$1/cmdline" ] || return 0
    tr '\0' '\n' <"/proc/$1/cmdline" | head -n 1
}

# is_installed_daemon PID: whether this installation is what runs there.
is_installed_daemon() {
    case "$(interpreter_of "$1")" in
        "$PREFIX"/*) return 0 ;;
        *) return 1 ;;
    esac
}

is_locked() { [ -e "$LOCK" ] && ! flock --nonblock "$LOCK" true; }

# refuse_other_daemon DOING: nothing may be changed under a daemon that somebody else started.
refuse_other_daemon() {
    is_locked || return 0
    local pid
    pid="$(daemon_pid)"
    if [ -n "$pid" ] && is_installed_daemon "$pid"; then
        return 0
    fi
    fail "cannot $1: a hived from another place (pid ${pid:-unknown}) runs on ${LOCK%/lock};" \
        "stop it with scripts/down in its checkout (data and what is wanted stay), then run this again"
}
