"""agent.toml, written by whoever may push config: what it may say, and how it is refused."""

import pytest

from hive_core.domain.errors import InvalidManifest
from hive_core.domain.names import parse_name
from hive_core.domain.operations import Capability
from hive_core.manifest import MAX_BYTES, Manifest, parse_manifest

BOB = parse_name("bob")
SMALL = 'name = "bob"\n[container]\ncommand = ["true"]\n'
WHOLE = """
name = "bob"
description = "greets"

[container]
image = "hive-agent:latest"
command = ["python3", "main.py"]
memory = "256m"
cpus = 0.5
pids = 64
tmp = "32m"
network = "none"
env = { GREETING = "hello", _x9 = "" }
"""


def _parsed(text: str) -> Manifest:
    return parse_manifest(text.encode(), BOB)


def _refused(text: str | bytes) -> InvalidManifest:
    with pytest.raises(InvalidManifest) as caught:
        parse_manifest(text if isinstance(text, bytes) else text.encode(), BOB)
    fault = caught.value
    assert fault.message.startswith("agent.toml: ")
    assert fault.message.isprintable()
    assert len(fault.message) < 500
    return fault


def test_every_key_is_read() -> None:
    found = _parsed(WHOLE)
    section = found.container
    assert (found.name, found.description) == ("bob", "greets")
    assert (section.image, section.command) == ("hive-agent:latest", ["python3", "main.py"])
    assert (section.memory, section.cpus, section.pids, section.tmp) == (256 << 20, 0.5, 64, 32 << 20)
    assert (section.network, section.env) == ("none", {"GREETING": "hello", "_x9": ""})


def test_what_is_left_out_is_the_hives_to_say() -> None:
    section = _parsed(SMALL).container
    assert (section.image, section.memory, section.cpus, section.pids, section.tmp) == (None,) * 5
    assert (section.network, section.env) == ("none", {})


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("cpus = 2", id="whole-cpus"),
        pytest.param("cpus = 0.01", id="smallest-cpus"),
        pytest.param('memory = "16m"', id="smallest-memory"),
        pytest.param('image = "registry:5000/team/agent@sha256:0123"', id="long-reference"),
        pytest.param(f'env = {{ A = "{"." * 190}" }}', id="many-dots"),
    ],
)
def test_values_at_the_edge_are_taken(line: str) -> None:
    _parsed(SMALL + line)


BAD_VALUES = [
    ('image = ""', "image"),
    ('image = "-v"', "image"),
    ('image = "UPPER"', "image"),
    ('image = "a b"', "image"),
    ('image = "a\\n"', "image"),
    ('image = "a/../b"', "image"),
    ('image = "a//b"', "image"),
    ("image = 7", "image"),
    ('memory = "256"', "memory"),
    ('memory = "256M"', "memory"),
    ('memory = "15m"', "memory"),
    ('memory = "2000g"', "memory"),
    ("memory = 268435456", "memory"),
    ('memory = "-1g"', "memory"),
    ("memory = true", "memory"),
    ("cpus = 0", "cpus"),
    ("cpus = 0.009", "cpus"),
    ("cpus = 1e-10", "cpus"),
    ("cpus = -1", "cpus"),
    ("cpus = 1025", "cpus"),
    (f"cpus = {'9' * 400}", "cpus"),
    ("cpus = nan", "cpus"),
    ("cpus = inf", "cpus"),
    ('cpus = "1"', "cpus"),
    ("cpus = true", "cpus"),
    ("pids = 15", "pids"),
    ("pids = 65537", "pids"),
    ("pids = 16.0", "pids"),
    ("pids = true", "pids"),
    ('pids = "64"', "pids"),
    ('tmp = "1k"', "tmp"),
    ('tmp = "65g"', "tmp"),
    ("tmp = []", "tmp"),
    ('network = "host"', "network"),
    ('network = ""', "network"),
    ('network = "container:h-eve"', "network"),
    ("network = false", "network"),
    ("env = []", "env"),
    ("env = { A = 1 }", "env.A"),
    ("env = { A = true }", "env.A"),
    ('env = { A = "x\\u0000y" }', "env"),
    ('env = { "A=B" = "" }', "env"),
    ('env = { "" = "" }', "env"),
    ('env = { "9A" = "" }', "env"),
    ('env = { "A B" = "" }', "env"),
    ('env = { "A\\n" = "" }', "env"),
    ('env = { "\N{CYRILLIC SMALL LETTER A}" = "" }', "env"),
    (f'env = {{ {"A" * 65} = "" }}', "env"),
    (f'env = {{ A = "{"x" * 8193}" }}', "env"),
    ("env = { " + ", ".join(f'A{number} = ""' for number in range(65)) + " }", "env"),
]


@pytest.mark.parametrize(
    ("line", "key"), BAD_VALUES, ids=[line[:40].encode("unicode_escape").decode() for line, _ in BAD_VALUES]
)
def test_a_bad_value_is_refused_by_its_key(line: str, key: str) -> None:
    assert f"'container.{key}'" in _refused(SMALL + line).message


@pytest.mark.parametrize(
    ("value", "key"),
    [
        pytest.param("[]", "container.command", id="empty"),
        pytest.param('[""]', "container.command", id="empty-program"),
        pytest.param('"true"', "container.command", id="a-string"),
        pytest.param("[1]", "container.command.0", id="a-number"),
        pytest.param('["a", ["b"]]', "container.command.1", id="nested"),
        pytest.param('["a\\u0000"]', "container.command", id="nul"),
        pytest.param(f'["{"x" * 4097}"]', "container.command", id="long-argument"),
        pytest.param("[" + '"x",' * 257 + "]", "container.command", id="many-arguments"),
    ],
)
def test_a_bad_command_is_refused(value: str, key: str) -> None:
    assert f"'{key}'" in _refused(f'name = "bob"\n[container]\ncommand = {value}\n').message


def test_a_network_is_refused_as_not_available_yet() -> None:
    fault = _refused(SMALL + 'network = "egress"')
    assert fault.message == "agent.toml: 'container.network': 'egress' is not available yet; only 'none' is"


@pytest.mark.parametrize(
    "variable",
    ["HIVE_AGENT", "HIVE_SOCKET", "HIVE_ANYTHING", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT",
     "GLIBC_TUNABLES", "DOCKER_HOST", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONUNBUFFERED", "GIT_DIR",
     "GIT_SSH_COMMAND", "BASH_ENV", "ENV", "HOME", "PATH", "USER", "NODE_OPTIONS", "PERL5LIB",
     "RUBYOPT"],
)  # fmt: skip
def test_environment_that_acts_before_the_program_is_refused_by_name(variable: str) -> None:
    assert f"{variable} is set by hive or changes how programs are loaded" in (
        _refused(SMALL + f'env = {{ {variable} = "x" }}').message
    )


# What a config might ask of a container engine, as the engine, compose files and others spell it.
_WIDENING = """\
privileged = true
cap_add = ["SYS_ADMIN"]
cap_drop = []
devices = ["/dev/kvm"]
device = "/dev/mem"
network_mode = "host"
pid = "host"
pid_mode = "host"
ipc = "host"
ipc_mode = "host"
userns = "host"
userns_mode = "host"
uts = "host"
cgroupns = "host"
security_opt = ["seccomp=unconfined"]
seccomp = "unconfined"
apparmor = "unconfined"
volumes = ["/var/run/docker.sock:/s"]
mounts = []
binds = ["/:/host"]
propagation = "shared"
user = "0"
uid = 0
group_add = ["0"]
runtime = "x"
cgroup_parent = "/"
sysctls = {}
restart = "always"
restart_policy = "always"
entrypoint = ["sh"]
tty = true
hostname = "x"
dns = []
extra_hosts = []
ports = ["80:80"]
labels = {}
init = false
read_only = false
ulimits = {}
oom_kill_disable = true
shm_size = 1
working_dir = "/"
"""


@pytest.mark.parametrize("line", _WIDENING.splitlines())
@pytest.mark.parametrize("table", ["", "container."])
def test_whatever_widens_a_container_is_refused_by_name(line: str, table: str) -> None:
    key = line.partition(" ")[0]
    text = f"{line}\n{SMALL}" if not table else SMALL + line
    assert _refused(text).message == f"agent.toml: unknown key '{table}{key}'"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        pytest.param(
            SMALL + 'memry = "1g"', "unknown key 'container.memry'", "did you mean 'memory'?", id="near-miss"
        ),
        pytest.param(
            "nmae = 'x'\n" + SMALL, "unknown key 'nmae'", "did you mean 'name'?", id="near-miss-on-top"
        ),
        pytest.param(
            SMALL + "zzzz = 1",
            "unknown key 'container.zzzz'",
            "known here: command, cpus, env, image, memory, network, pids, tmp",
            id="nothing-near",
        ),
        pytest.param(SMALL + "[extra]\nx = 1", "unknown key 'extra'", "known here: ", id="a-table"),
        pytest.param('[container]\ncommand = ["true"]', "'name' is missing", "add name = ", id="no-name"),
        pytest.param('name = "bob"', "'container' is missing", "add container = ", id="no-container"),
        pytest.param(
            'name = "bob"\n[container]\n', "'container.command' is missing", "add command = ", id="no-command"
        ),
        pytest.param("", "is missing", "add ", id="empty"),
    ],
)
def test_a_wrong_or_missing_key_is_named_with_the_way_out(text: str, message: str, hint: str) -> None:
    fault = _refused(text)
    assert message in fault.message
    assert hint in fault.hint


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param('name = "eve"', "'name' is 'eve' in the config repo of 'bob'", id="another-agents"),
        pytest.param('name = "Bob"', "'name': invalid agent name 'Bob'", id="upper-case"),
        pytest.param('name = "operator"', "'name': invalid agent name 'operator'", id="reserved"),
        pytest.param('name = "../eve"', "'name': invalid agent name", id="path"),
        pytest.param('name = "bob\\n"', "'name': invalid agent name", id="newline"),
        pytest.param("name = 7", "'name'", id="number"),
    ],
)
def test_a_name_that_is_not_the_repos_is_refused(line: str, message: str) -> None:
    assert message in _refused(SMALL.replace('name = "bob"', line)).message


def test_a_long_description_is_refused() -> None:
    assert "'description'" in _refused(f'description = "{"x" * 501}"\n{SMALL}').message


# ---- capabilities -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('capabilities = ["MetaRead"]\n' + SMALL, id="a-list"),
        pytest.param("capabilities = []\n" + SMALL, id="an-empty-list"),
        pytest.param("grants = {}\n" + SMALL, id="grants"),
        pytest.param(SMALL + "caps = 1", id="in-the-container"),
        pytest.param(SMALL + "Capability = 1", id="other-case"),
        pytest.param(SMALL + '[a.b.c]\nx = ["MetaRead"]', id="deep-value"),
        pytest.param(SMALL + "[a.b.grant]\nx = 1", id="deep-key"),
        pytest.param(SMALL + "[[a]]\nx = [[['metaread']]]", id="in-nested-lists"),
        pytest.param(SMALL + 'env = { RIGHTS = "ManageLifecycle" }', id="in-the-environment"),
        pytest.param(SMALL + 'env = { MetaRead = "1" }', id="as-an-environment-name"),
        pytest.param(SMALL.replace('"true"', '"x", "ManageRootAgent"'), id="in-the-command"),
        pytest.param('description = "QueryAgentState"\n' + SMALL, id="as-the-description"),
        *(pytest.param(f"{one.value} = true\n{SMALL}", id=f"key-{one.value}") for one in Capability),
    ],
)
def test_a_capability_is_refused_wherever_it_is(text: str) -> None:
    fault = _refused(text)
    assert fault.message.endswith("names a capability")
    assert fault.hint == "no config can ask for a capability; only the operator grants one"


# ---- files that are no manifest ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(SMALL.encode() + b"#" * MAX_BYTES, f"larger than {MAX_BYTES} bytes", id="over-64-kib"),
        pytest.param(SMALL.encode("utf-16"), "not UTF-8", id="utf-16"),
        pytest.param(b"\xff" + SMALL.encode(), "not UTF-8", id="bad-utf-8"),
        pytest.param(b"\xef\xbb\xbf" + SMALL.encode(), "not TOML", id="bom"),
        pytest.param(SMALL.encode() + b"\0", "not TOML", id="nul"),
        pytest.param(b"\x7fELF\x00", "not TOML", id="binary"),
        pytest.param(b"{}", "not TOML", id="json"),
        pytest.param(SMALL.encode() + b'name = "bob"', "", id="duplicate-key"),
        pytest.param(SMALL.encode() + b"[container]", "not TOML", id="duplicate-table"),
        pytest.param(SMALL.encode() + b'memory = "1g', "not TOML", id="half-written"),
        pytest.param(b"x = " + b"[" * 30_000, "not TOML: nested too deeply", id="deep-arrays"),
        pytest.param(b"x = " + b"{a=" * 15_000, "not TOML: nested too deeply", id="deep-tables"),
        pytest.param(b"a" + b".a" * 32_000 + b" = 1", "more than 200 dots", id="deep-dotted-key"),
        pytest.param(b"[a" + b".a" * 32_000 + b"]", "more than 200 dots", id="deep-table-name"),
        pytest.param(b'"a"' + b' . "a"' * 10_000 + b" = 1", "more than 200 dots", id="deep-quoted-key"),
        pytest.param(b"a" + b".a" * 150 + b" = 1", "nested more than 16 deep", id="dotted-key-in-bounds"),
        pytest.param(
            b"".join(b"a" + b".a" * 199 + b".b%d = 1\n" % number for number in range(150)),
            "",
            id="many-dotted-keys",
        ),
        pytest.param(SMALL.encode() + b"pids = " + b"9" * 5000, "not TOML", id="5000-digits"),
        pytest.param(b"[[a]]\n" * 10_000, "unknown key 'a'", id="many-tables"),
    ],
)
@pytest.mark.timeout(20)
def test_what_is_no_manifest_is_refused_in_time(content: bytes, message: str) -> None:
    assert message in _refused(content).message


def test_a_manifest_of_the_largest_size_is_read() -> None:
    padding = MAX_BYTES - len(SMALL) - 1
    assert _parsed(SMALL + "#" + "x" * padding).name == "bob"
