import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hive_core.domain.errors import InvalidSettings
from hive_core.settings import RosterShape, Settings, load_settings, parse_settings


def _fields(model: type[BaseModel], table: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for key, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _fields(inner, f"{table}{key}.")
        else:
            yield f"{table}{key}", field


FIELDS = dict(_fields(Settings))


def test_there_are_settings() -> None:
    assert {"hive.id", "paths.data", "admin.group", "uids.start", "container.memory"} <= FIELDS.keys()


@pytest.mark.parametrize("key", FIELDS)
def test_every_setting_has_a_default_and_says_what_it_is_for(key: str) -> None:
    field = FIELDS[key]
    assert not field.is_required()
    assert field.description
    assert field.description.endswith(".")
    is_duration = key.endswith("_s")
    if is_duration:
        assert "econds" in field.description or "window" in field.description


def test_every_table_may_be_left_out() -> None:
    assert parse_settings("") == Settings()
    assert Settings().paths.data == Path("/var/lib/hive")
    assert Settings().hive.root_agent == "ruth"


def test_what_is_set_is_read_and_the_rest_keeps_its_default() -> None:
    found = parse_settings(
        '[hive]\nid = "lab"\nroster_shape = "flat"\nruthless = true\n'
        '[paths]\ndata = "/srv/hive"\n[reconcile]\ninterval_s = 5\n[container]\nmemory = "64m"\n'
    )
    assert (found.hive.id, found.hive.roster_shape, found.hive.ruthless) == ("lab", RosterShape.FLAT, True)
    assert (found.paths.data, found.paths.run) == (Path("/srv/hive"), Path("/run/hive"))
    assert (found.reconcile.interval_s, found.container.memory) == (5.0, 64 << 20)


BAD = [
    ("[hive]\nid = 5", "'hive.id': invalid hive id: expected text"),
    ('[hive]\nid = ""', "'hive.id': invalid hive id"),
    ('[hive]\nid = "a-b"', "'hive.id': invalid hive id"),
    ('[hive]\nid = "abcdefghijklm"', "'hive.id': invalid hive id"),
    ('[hive]\nroot_agent = "operator"', "'hive.root_agent': invalid agent name"),
    ('[hive]\nroot_agent = "Ruth"', "'hive.root_agent': invalid agent name"),
    ("[hive]\nroot_agent = 1", "'hive.root_agent': invalid agent name: expected text"),
    ('[hive]\nruthless = "yes"', "'hive.ruthless'"),
    ("[hive]\nruthless = 1", "'hive.ruthless'"),
    ('[hive]\nroster_shape = "ring"', "'hive.roster_shape'"),
    ('[paths]\ndata = "var/lib/hive"', "'paths.data': must be an absolute path without '..'"),
    ('[paths]\ndata = "/var/../etc"', "'paths.data': must be an absolute path without '..'"),
    ('[paths]\ndata = ""', "'paths.data': must be an absolute path"),
    ("[paths]\nrun = 7", "'paths.run': must be an absolute path"),
    ('[paths]\nrun = "/run/.."', "'paths.run': must be an absolute path"),
    ('[admin]\ngroup = ""', "'admin.group'"),
    ('[engine]\nsocket = "docker.sock"', "'engine.socket'"),
    ("[engine]\ncall_timeout_s = 0", "'engine.call_timeout_s'"),
    ("[engine]\ncall_timeout_s = nan", "'engine.call_timeout_s'"),
    ("[engine]\nevent_window_s = inf", "'engine.event_window_s'"),
    ("[reconcile]\ninterval_s = 0", "'reconcile.interval_s'"),
    ('[reconcile]\ninterval_s = "30"', "'reconcile.interval_s'"),
    ("[reconcile]\nstart_workers = 0", "'reconcile.start_workers'"),
    ("[reconcile]\nstop_workers = 2.5", "'reconcile.stop_workers'"),
    ("[crashes]\nbackoff_initial_s = 0", "'crashes.backoff_initial_s'"),
    ("[crashes]\nloop_count = 1", "'crashes.loop_count'"),
    ("[uids]\nstart = 0", "'uids.start'"),
    ("[uids]\ncount = 15", "'uids.count'"),
    ("[uids]\nstart = 4294900000\ncount = 67296", "'uids': start + count must be at most 4294967295"),
    ("[git]\ntimeout_s = 0", "'git.timeout_s'"),
    ("[container]\ncpus = 0", "'container.cpus'"),
    ("[container]\ncpus = 1e-10", "'container.cpus'"),
    ('[container]\nmemory = "1"', "'container.memory': '1' is no size"),
    ('[container]\nmemory = "1k"', "'container.memory'"),
    ("[container]\nmemory = true", "'container.memory'"),
    ("[container]\nstop_grace_s = -1", "'container.stop_grace_s'"),
    ("hive = 1", "'hive'"),
    ("[[hive]]", "'hive'"),
    ("[hive", "not TOML"),
    ("x = " + "[" * 5000, "not TOML: nested too deeply"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[text[:50].replace("\n", " ") for text, _ in BAD])
def test_a_bad_value_is_refused_by_its_key(text: str, message: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse_settings(text, "hive.toml")
    assert caught.value.message.startswith(f"hive.toml: {message}")


def test_the_last_uids_there_are_can_be_used() -> None:
    assert parse_settings("[uids]\nstart = 4294900000\ncount = 67295").uids.count == 67_295


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        pytest.param("[hives]", "unknown key 'hives'", "did you mean 'hive'?", id="table"),
        pytest.param(
            "[hive]\nruthles = true", "unknown key 'hive.ruthles'", "did you mean 'ruthless'?", id="key"
        ),
        pytest.param("[paths]\nx = 1", "unknown key 'paths.x'", "known here: data, run", id="nothing-near"),
        pytest.param(
            "interval_s = 1", "unknown key 'interval_s'", "known here: ", id="key-without-its-table"
        ),
        pytest.param(
            '[hive]\n"a\\u001b[31m" = 1', "unknown key 'hive.a\\x1b[31m'", "known here: ", id="control"
        ),
    ],
)
def test_an_unknown_key_is_refused_with_the_one_that_was_meant(text: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse_settings(text, "hive.toml")
    assert caught.value.message == f"hive.toml: {message}"
    assert hint in caught.value.hint


# ---- files ------------------------------------------------------------------------------------------------


def test_a_file_that_was_asked_for_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="does not exist"):
        load_settings(tmp_path / "hive.toml")


def test_the_default_file_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hive_core.settings.DEFAULT_PATH", tmp_path / "hive.toml")
    assert load_settings(None) == Settings()
    (tmp_path / "hive.toml").write_text('[hive]\nid = "lab"\n')
    assert load_settings(None).hive.id == "lab"


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cannot read settings file"):
        load_settings(tmp_path)
    (tmp_path / "hive.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSettings, match="cannot read settings file"):
        load_settings(tmp_path / "hive.toml")


# ---- hived check ------------------------------------------------------------------------------------------

ACCOUNTS = '[admin]\ngroup = "root"\n[git]\nuser = "nobody"\n[uids]\nreserve = false\n'


def _check(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from hive_core.daemon import main; main()", "check", *arguments]
    root = Path(__file__).parents[3]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        pytest.param(ACCOUNTS, 0, "", id="valid"),
        pytest.param(ACCOUNTS + '[hive]\nid = "lab"\n', 0, "", id="valid-other-hive"),
        pytest.param(ACCOUNTS + "[hiv]\n", 2, "unknown key 'hiv' (did you mean 'hive'?)", id="unknown-key"),
        pytest.param(ACCOUNTS + "[hive]\nid = 5\n", 2, "'hive.id': invalid hive id", id="bad-value"),
        pytest.param("[", 2, "not TOML", id="no-toml"),
        pytest.param('[admin]\ngroup = "no-such-group"\n', 1, "no group 'no-such-group'", id="no-group"),
        pytest.param(ACCOUNTS.replace("nobody", "no-such-user"), 1, "no user 'no-such-user'", id="no-user"),
        pytest.param(ACCOUNTS.replace("nobody", "root"), 1, "root", id="git-as-root"),
    ],
)
def test_check_says_whether_the_daemon_could_start(
    tmp_path: Path, text: str, code: int, message: str
) -> None:
    path = tmp_path / "hive.toml"
    path.write_text(text)
    done = _check("--settings", str(path))
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    if code == 0:
        assert done.stdout.startswith("settings are valid: hive '")
    else:
        assert done.stderr.startswith("hived: ")
        assert done.stderr.count("\n") == 1


def test_check_of_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    done = _check("--settings", str(tmp_path / "missing.toml"))
    assert (done.returncode, "does not exist" in done.stderr) == (2, True)
