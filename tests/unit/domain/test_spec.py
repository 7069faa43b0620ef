from collections.abc import Callable
from dataclasses import fields, replace

import pytest

from hive_core.domain.spec import (
    FIXED,
    BindMount,
    ContainerSpec,
    Limits,
    Propagation,
    differing_fields,
    dump,
    is_known_version,
    load,
    normal_form,
    spec_hash,
)
from tests.support.plan_inputs import spec

BASE = spec("bob")


def _limit(**changes: float) -> Callable[[ContainerSpec], ContainerSpec]:
    return lambda one: replace(one, limits=replace(one.limits, **changes))  # type: ignore[arg-type]


def _first_mount(**changes: object) -> Callable[[ContainerSpec], ContainerSpec]:
    def changed(one: ContainerSpec) -> ContainerSpec:
        first, *others = one.mounts
        return replace(one, mounts=(replace(first, **changes), *others))  # type: ignore[arg-type]

    return changed


# (what is changed, how, the field of the normal form that says so)
CHANGES: list[tuple[str, Callable[[ContainerSpec], ContainerSpec], str]] = [
    ("name", lambda one: replace(one, name="h-eve"), "name"),
    ("image_id", lambda one: replace(one, image_id="sha256:2"), "image"),
    ("command", lambda one: replace(one, command=("python3", "-c", "main.py")), "command"),
    ("command", lambda one: replace(one, command=("main.py", "python3")), "command"),
    ("env", lambda one: replace(one, env=(*one.env, ("A", "1"))), "env"),
    ("env", lambda one: replace(one, env=one.env[:1]), "env"),
    ("drop_env", lambda one: replace(one, drop_env=()), "drop_env"),
    ("uid", lambda one: replace(one, uid=one.uid + 1), "uid"),
    ("gid", lambda one: replace(one, gid=one.gid + 1), "gid"),
    ("commit", lambda one: replace(one, commit="d" * 40), "commit"),
    ("mounts", lambda one: replace(one, mounts=one.mounts[1:]), "mounts"),
    ("mounts", _first_mount(source="/elsewhere"), "mounts"),
    ("mounts", _first_mount(target="/zzz"), "mounts"),
    ("mounts", _first_mount(read_only=True), "mounts"),
    ("mounts", _first_mount(propagation=Propagation.PRIVATE), "mounts"),
    ("limits", _limit(memory_bytes=1), "memory_bytes"),
    ("limits", _limit(cpus=0.5), "cpus_nano"),
    ("limits", _limit(cpus=1.000000001), "cpus_nano"),
    ("limits", _limit(pids=1), "pids"),
    ("limits", _limit(nofile=1), "nofile"),
    ("limits", _limit(tmp_bytes=1), "tmp_bytes"),
    ("limits", _limit(log_bytes=1), "log_bytes"),
    ("limits", _limit(log_files=1), "log_files"),
    ("network", lambda one: replace(one, network="egress"), "network"),
    ("stop_grace_s", lambda one: replace(one, stop_grace_s=11), "stop_grace_s"),
]  # fmt: skip
_IDS = [f"{named}-{told}-{number}" for number, (named, _, told) in enumerate(CHANGES)]


@pytest.mark.parametrize(("named", "change", "told"), CHANGES, ids=_IDS)
def test_every_field_changes_the_hash_and_is_told_by_name(
    named: str, change: Callable[[ContainerSpec], ContainerSpec], told: str
) -> None:
    changed = change(BASE)
    assert changed != BASE
    assert spec_hash(changed) != spec_hash(BASE)
    assert differing_fields(BASE, changed) == (told,)
    assert load(dump(changed)) == changed


def test_no_field_is_left_out_of_the_table() -> None:
    assert {named for named, _, _ in CHANGES} == {one.name for one in fields(ContainerSpec)}
    assert {told for _, _, told in CHANGES} == normal_form(BASE).keys() - FIXED.keys()
    assert len({spec_hash(change(BASE)) for _, change, _ in CHANGES}) == len(CHANGES)


def test_the_hash_of_a_known_spec_never_changes() -> None:
    """Another value here would make every container of every hive out of date at once: raise the version."""
    plain = ContainerSpec(
        name="h-bob",
        image_id="sha256:0",
        command=("true",),
        env=(("A", "1"),),
        drop_env=(),
        uid=1,
        gid=1,
        commit="0",
        mounts=(BindMount("/state", "/s"),),
        limits=Limits(1, 1.0, 1, 1, 1, 1, 1),
    )
    assert spec_hash(plain) == "v1:e5cd1676b6c3cd713c6126d1367a8888a332d982b8689ad8c610e708db79b473"


def test_order_of_environment_and_mounts_makes_no_difference() -> None:
    shuffled = replace(
        BASE,
        env=tuple(reversed(BASE.env)),
        mounts=tuple(reversed(BASE.mounts)),
        drop_env=tuple(reversed(BASE.drop_env)),
    )
    assert shuffled == BASE
    assert spec_hash(shuffled) == spec_hash(BASE)
    assert differing_fields(BASE, shuffled) == ()


def test_what_is_the_same_for_everybody_is_hashed_all_the_same() -> None:
    assert FIXED.items() <= normal_form(BASE).items()


def test_the_stored_form_reads_back_the_same() -> None:
    assert load(dump(BASE)) == BASE
    assert spec_hash(load(dump(BASE))) == spec_hash(BASE)


@pytest.mark.parametrize("cpus", [1 / 3, 0.1, 0.01, 1e-9, 2 / 7 * 1000, 1024.0])
def test_a_share_of_a_cpu_reads_back_the_same(cpus: float) -> None:
    one = replace(BASE, limits=replace(BASE.limits, cpus=cpus))
    assert load(dump(one)) == one


@pytest.mark.parametrize(
    ("label", "is_known"),
    [
        pytest.param(spec_hash(BASE), True, id="this-version"),
        pytest.param("v2:" + "0" * 64, False, id="later-version"),
        pytest.param("v10:" + "0" * 64, False, id="version-with-this-one-as-prefix"),
        pytest.param("0" * 64, False, id="no-version"),
        pytest.param("", False, id="empty"),
    ],
)
def test_labels_of_other_versions_are_recognised(label: str, is_known: bool) -> None:
    assert is_known_version(label) is is_known
