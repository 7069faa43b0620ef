"""From manifest to container spec: the mounts, the environment, and what an image may not bring."""

import pytest

from hive_core.domain.errors import ImageUnusable
from hive_core.domain.observed import ImageFacts
from hive_core.domain.spec import ContainerSpec, Limits
from hive_core.manifest import parse_manifest
from hive_core.planning.container import build_spec
from hive_core.settings import Container
from tests.support.plan_inputs import COMMIT, LAYOUT, name

BOB = name("bob")
UID = 1_900_000_042
IMAGE = ImageFacts("sha256:" + "1" * 64, ("PATH", "LANG"), ())
DEFAULTS = Container()


def _built(extra: str = "", image: ImageFacts = IMAGE, defaults: Container = DEFAULTS) -> ContainerSpec:
    text = f'name = "bob"\n[container]\ncommand = ["python3", "main.py"]\n{extra}\n'
    return build_spec(BOB, UID, parse_manifest(text.encode(), BOB), COMMIT, image, defaults, LAYOUT)


def test_every_container_has_exactly_these_mounts() -> None:
    shown = {
        mount.target: f"{mount.source} {'ro' if mount.read_only else 'rw'} {mount.propagation.value}"
        for mount in _built().mounts
    }
    assert shown == {
        "/state": "/var/lib/hive/agents/bob/state rw rprivate",
        "/home/agent": "/var/lib/hive/agents/bob/home rw rprivate",
        "/config": f"/var/lib/hive/agents/bob/config/{COMMIT} ro rprivate",
        "/etc/passwd": "/var/lib/hive/agents/bob/etc/passwd ro rprivate",
        "/etc/group": "/var/lib/hive/agents/bob/etc/group ro rprivate",
        "/run/hive": "/run/hive/agents/bob ro rprivate",
        "/agents": "/run/hive/grants/bob rw rslave",
        "/meta": "/run/hive/grants/.meta/bob rw rslave",
        "/run/hive-secrets": "/run/hive/secrets/bob ro rprivate",
    }


def test_the_environment_says_who_the_agent_is() -> None:
    assert dict(_built().env) == {
        "HIVE_AGENT": "bob",
        "HIVE_ID": "default",
        "HIVE_SOCKET": "/run/hive/hive.sock",
        "HIVE_STATE": "/state",
        "HOME": "/home/agent",
        "PATH": "/home/agent/.local/bin:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "GIT_AUTHOR_NAME": "bob",
        "GIT_AUTHOR_EMAIL": "bob@default.hive.invalid",
        "GIT_COMMITTER_NAME": "bob",
        "GIT_COMMITTER_EMAIL": "bob@default.hive.invalid",
    }


def test_declared_environment_arrives_and_may_choose_the_language() -> None:
    env = dict(_built('env = { GREETING = "hi", LANG = "de_DE.UTF-8" }').env)
    assert (env["GREETING"], env["LANG"], env["HIVE_AGENT"]) == ("hi", "de_DE.UTF-8", "bob")


def test_what_an_image_must_not_bring_is_dropped() -> None:
    dangerous = ("LD_PRELOAD", "LD_LIBRARY_PATH", "GLIBC_TUNABLES", "PYTHONPATH", "PYTHONSTARTUP", "GIT_DIR",
                 "GIT_SSH_COMMAND", "BASH_ENV", "ENV", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "DOCKER_HOST",
                 "HIVE_TOOL_GROUPS", "USER")  # fmt: skip
    harmless = ("TERM", "TZ", "MY_LD_PRELOAD", "ENVIRONMENT")
    built = _built(image=ImageFacts(IMAGE.id, (*dangerous, *harmless, "PATH", "HOME", "HIVE_AGENT"), ()))
    assert built.drop_env == tuple(sorted(dangerous))


def test_what_hive_sets_itself_is_not_dropped() -> None:
    built = _built(image=ImageFacts(IMAGE.id, ("PATH", "HOME", "HIVE_SOCKET", "PYTHONUNBUFFERED"), ()))
    assert built.drop_env == ()


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        pytest.param("", "hive-agent:latest", id="default-image"),
        pytest.param('image = "mine:1"', "mine:1", id="own-image"),
    ],
)
def test_an_image_that_declares_volumes_is_refused_by_name(extra: str, named: str) -> None:
    image = ImageFacts(IMAGE.id, (), ("/var/lib/x", "/cache"))
    with pytest.raises(
        ImageUnusable, match=f"image {named} declares volumes \\(/var/lib/x, /cache\\)"
    ) as caught:
        _built(extra, image)
    assert "VOLUME" in caught.value.hint


def test_what_a_manifest_leaves_out_takes_the_default() -> None:
    defaults = Container(memory=64 << 20, cpus=0.25, pids=99, tmp=2 << 20, stop_grace_s=3)
    built = _built(defaults=defaults)
    assert built.limits == Limits(64 << 20, 0.25, 99, 4096, 2 << 20, 10 << 20, 3)
    assert built.stop_grace_s == 3


def test_what_a_manifest_says_wins_over_the_default() -> None:
    built = _built('memory = "32m"\ncpus = 2\npids = 17\ntmp = "1m"')
    assert built.limits == Limits(32 << 20, 2.0, 17, 4096, 1 << 20, 10 << 20, 3)


def test_the_rest_of_the_spec() -> None:
    built = _built()
    assert (built.name, built.image_id, built.command) == ("h-bob", IMAGE.id, ("python3", "main.py"))
    assert (built.uid, built.gid, built.commit, built.network) == (UID, UID, COMMIT, "none")


def test_the_same_inputs_in_another_order_are_the_same_spec() -> None:
    one = _built('env = { A = "1", B = "2" }', ImageFacts(IMAGE.id, ("LD_A", "LD_B"), ()))
    other = _built('env = { B = "2", A = "1" }', ImageFacts(IMAGE.id, ("LD_B", "LD_A"), ()))
    assert one == other
