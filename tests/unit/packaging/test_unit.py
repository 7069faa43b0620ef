"""packaging/hived.service: what a promise rests on, and nothing that would quietly break one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hive_core import daemon

UNIT = Path(__file__).resolve().parents[3] / "packaging" / "hived.service"

# Options known to leave the service in the host's mount namespace. A new one goes in here only after a look
# at systemd.exec(5): many that do not say "mount" in their name (ProtectKernelLogs=, LoadCredential=,
# PrivateNetwork=, LogNamespace=, ProtectProc=) unshare it too.
HARMLESS = {
    *("Type", "NotifyAccess", "ExecStart", "TimeoutStartSec", "TimeoutStopSec", "WatchdogSec"),
    *("Restart", "RestartSec", "RestartPreventExitStatus", "KillMode", "OOMPolicy"),
    *("UMask", "LimitNOFILE", "StandardOutput", "StandardError", "SyslogIdentifier"),
    *("NoNewPrivileges", "LockPersonality", "RestrictRealtime", "SystemCallArchitectures"),
    "CapabilityBoundingSet",
}
# Used by the daemon or its git: mounts, owners, other users' files, namespaces, the firewall, its children.
NEEDED = {
    *("CAP_SYS_ADMIN", "CAP_CHOWN", "CAP_FOWNER", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_SETUID"),
    *("CAP_SETGID", "CAP_SETPCAP", "CAP_KILL", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE", "CAP_NET_ADMIN"),
    *("CAP_SYS_CHROOT", "CAP_MKNOD", "CAP_FSETID"),
}


def _options(unit: Path = UNIT) -> Iterator[tuple[str, str]]:
    section = ""
    for line in unit.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            yield f"{section}.{key}", value


def test_no_option_gives_it_a_mount_namespace_of_its_own() -> None:
    keys = [key.removeprefix("Service.") for key, _ in _options() if key.startswith("Service.")]
    assert len(keys) == len(set(keys))
    assert set(keys) <= HARMLESS


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("Service.Type", "notify", id="says-when-it-is-ready"),
        pytest.param("Service.NotifyAccess", "main", id="and-only-it-says-so"),
        pytest.param("Service.ExecStart", "/opt/hive/current/bin/hived", id="the-current-version"),
        pytest.param("Service.WatchdogSec", "60", id="is-watched"),
        pytest.param("Service.Restart", "on-failure", id="comes-back"),
        pytest.param("Service.RestartPreventExitStatus", "2", id="but-not-with-bad-settings"),
        pytest.param("Unit.StartLimitIntervalSec", "300", id="nor-for-ever"),
        pytest.param("Unit.StartLimitBurst", "5", id="five-times"),
        pytest.param("Service.KillMode", "process", id="ends-alone"),
        pytest.param("Service.OOMPolicy", "continue", id="survives-its-children"),
        pytest.param("Service.UMask", "0077", id="private-files"),
        pytest.param("Service.NoNewPrivileges", "yes", id="no-setuid-programs"),
        pytest.param("Unit.After", "docker.service", id="stops-before-the-engine"),
        pytest.param("Unit.Wants", "docker.service", id="but-does-not-fall-with-it"),
        pytest.param("Install.WantedBy", "multi-user.target", id="starts-at-boot"),
    ],
)
def test_option(key: str, value: str) -> None:
    assert dict(_options())[key] == value


def test_stopping_has_more_time_than_the_daemon_takes() -> None:
    takes_s = daemon._PASS_LIMIT_S + daemon._ACTIONS_LIMIT_S + daemon._CONNECTIONS_LIMIT_S
    assert float(dict(_options())["Service.TimeoutStopSec"]) > 2 * takes_s


def test_capabilities_that_are_needed_are_left() -> None:
    dropped = dict(_options())["Service.CapabilityBoundingSet"]
    assert dropped.startswith("~")
    assert not set(dropped[1:].split()) & NEEDED
