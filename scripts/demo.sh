# shellcheck shell=bash
# Sourced by scripts/up and scripts/down: the engine, the daemon and the agents of the demo hive `default`.

ENGINE_SOCKET=/var/run/docker.sock
ENGINE_PID=/run/hive-engine.pid
ENGINE_LOG=/var/log/hive-engine.log
DAEMON_LOG=/var/log/hived.log
LOCK=/var/lib/hive/lock

hivectl() { "$HIVE_VENV/bin/hivectl" "$@"; }

_has_systemd() { [ "$(cat /proc/1/comm)" = systemd ]; }

_engine_answers() { curl_engine >/dev/null 2>&1; }

# One GET of /_ping, without depending on a client's version.
curl_engine() {
    python3 - "$ENGINE_SOCKET" <<'PY'
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.settimeout(5)
    s.connect(sys.argv[1])
    s.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
    sys.exit(0 if b" 200 " in s.recv(64) else 1)
PY
}

# A log that only root reads: agents' words end up in it.
private_log() {
    touch "$1"
    chmod 600 "$1"
}

# wait_for SECONDS WHAT COMMAND...: polls until the command succeeds.
wait_for() {
    local deadline=$((SECONDS + $1)) what="$2"
    shift 2
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.2
    done
}

start_engine() {
    _engine_answers && return 0
    if _has_systemd; then
        say "starting the engine (systemd)"
        systemctl start docker || fail "cannot start the engine: systemctl status docker says why"
    else
        say "starting the engine (dockerd, log in $ENGINE_LOG)"
        private_log "$ENGINE_LOG"
        setsid dockerd >>"$ENGINE_LOG" 2>&1 </dev/null &
        echo $! >"$ENGINE_PID"
    fi
    wait_for 60 engine _engine_answers || {
        [ ! -e "$ENGINE_LOG" ] || tail -n 5 "$ENGINE_LOG" >&2
        fail "the engine does not answer on $ENGINE_SOCKET after 60 s"
    }
}

# Stops the engine only if start_engine started it by hand, and that very process still runs.
stop_engine() {
    [ -r "$ENGINE_PID" ] || return 0
    local pid
    pid="$(cat "$ENGINE_PID")"
    if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]; then
        say "stopping the engine that scripts/up started"
        kill "$pid"
        wait_for 30 "end of the engine" _is_gone "$pid" || fail "the engine (pid $pid) does not stop"
    fi
    rm -f "$ENGINE_PID"
}

_is_gone() { [ ! -d "/proc/$1" ]; }

# The pid of the daemon that holds the hive's lock; nothing when none does.
daemon_pid() {
    [ -e "$LOCK" ] || return 0
    flock --nonblock "$LOCK" true && return 0
    tr -d '\n' <"$LOCK"
}

_daemon_answers() { hivectl status -o json >/dev/null 2>&1; }

# Whether a daemon runs from this checkout; one that scripts/install put there is not ours to restart.
_is_ours() { tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | grep -qF "$HIVE_VENV/bin/hived"; }

# Whether the daemon started after the last change of what it runs from.
_is_current() {
    local started newest
    started="$(stat -c %Y "/proc/$1" 2>/dev/null)" || return 1
    newest="$(find "$HIVE_ROOT/hive_core" "$HIVE_ROOT/hive_api" "$HIVE_ROOT/requirements.txt" /etc/hive \
        -name '*.pyc' -prune -o -type f -printf '%T@\n' 2>/dev/null | sort -n | tail -n 1)" || true
    [ "${newest%.*}" -le "$started" ]
}

start_daemon() {
    local pid
    pid="$(daemon_pid)"
    if [ -n "$pid" ] && ! _is_ours "$pid"; then
        say "a hived runs already (pid $pid), not from this checkout; it is used as it is"
        wait_for 15 daemon _daemon_answers && return 0
        fail "that hived does not answer: systemctl status hived"
    fi
    if [ -n "$pid" ] && _is_current "$pid"; then
        wait_for 15 daemon _daemon_answers && return 0
        fail "hived (pid $pid) runs but does not answer; its log: $DAEMON_LOG"
    fi
    [ -z "$pid" ] || { say "the daemon is older than this checkout"; stop_daemon; }
    say "starting hived (log in $DAEMON_LOG)"
    "$HIVE_VENV/bin/hived" check >/dev/null || fail "the settings cannot be used, see above"
    private_log "$DAEMON_LOG"
    setsid "$HIVE_VENV/bin/hived" >>"$DAEMON_LOG" 2>&1 </dev/null &
    pid=$!
    wait_for 30 daemon _answers_or_dead "$pid"
    _daemon_answers || fail "hived did not start: $(tail -n 1 "$DAEMON_LOG")"
}

_answers_or_dead() { _daemon_answers || _is_gone "$1"; }

stop_daemon() {
    local pid
    pid="$(daemon_pid)"
    [ -n "$pid" ] || return 0
    _is_ours "$pid" || fail "hived (pid $pid) was not started by scripts/up; stop it with: systemctl stop hived"
    say "stopping hived (pid $pid)"
    kill "$pid" 2>/dev/null || true
    wait_for 30 "end of hived" _is_gone "$pid" || fail "hived (pid $pid) does not stop; its log: $DAEMON_LOG"
}

# Stops the containers of this hive; their desired state stays.
stop_agents() {
    [ -e /var/lib/hive/hive.db ] && [ -x "$HIVE_VENV/bin/hived" ] && _engine_answers || return 0
    say "stopping the agents"
    "$HIVE_VENV/bin/hived" down >&2
}

_has_agent() { hivectl ps -o name | grep -qx "$1"; }

_demo_agent() {
    _has_agent "$1" && return 0
    say "creating $1 below $2"
    hivectl init "$1" --from "$HIVE_ROOT/examples/$1" --parent "$2"
    hivectl spawn "$1"
}

# Succeeds when every agent that should run does; prints the first reason when one does not.
missing_agents() {
    hivectl ps -o json | "$HIVE_VENV/bin/python" -c '
import json, sys
missing = [a for a in json.load(sys.stdin) if a["desired"] == "running" and a["state"] != "running"]
for agent in missing:
    print("%(name)s is %(state)s: %(reason)s" % agent)
sys.exit(bool(missing))'
}

_all_run() { missing_agents >/dev/null; }
_has_root() { _has_agent ruth && _all_run; }

_is_paused() { [ "$(hivectl status -o json | sed -n 's/^  "phase": "\(.*\)",$/\1/p')" = paused ]; }

bring_up_agents() {
    if _is_paused; then # as after a restore: nothing starts by itself, so there is nothing to wait for
        say "automation is off: look around, then .venv/bin/hivectl resume"
        return 0
    fi
    wait_for 60 "the root agent" _has_root || fail "$(missing_agents | tail -n 1; hivectl status | tail -n 1)"
    _demo_agent alice ruth
    _demo_agent bob alice
    wait_for 60 "every agent" _all_run || fail "not all agents run: $(missing_agents | tail -n 1)"
}
