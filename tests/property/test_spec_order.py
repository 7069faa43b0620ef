"""A spec says the same whatever the order in which its parts were put together: no false restart."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hive_core.domain.observed import EngineState, ImageFacts
from hive_core.domain.roster import Present, Roster, Shape, decode, encode
from hive_core.domain.spec import BindMount, ContainerSpec, Limits, Propagation, dump, load, spec_hash
from hive_core.manifest import parse_manifest
from hive_core.planning.container import build_spec
from hive_core.planning.plan import plan
from hive_core.settings import Container
from tests.support.plan_inputs import (
    COMMIT,
    LAYOUT,
    NOW,
    agent,
    container,
    desired_state,
    name,
    observed,
)

_WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
_NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,7}", fullmatch=True)
_COUNTS = st.integers(1, 1 << 40)

SPECS = st.builds(
    ContainerSpec,
    name=_WORDS,
    image_id=_WORDS,
    command=st.lists(_WORDS, min_size=1, max_size=4).map(tuple),
    env=st.dictionaries(_NAMES, _WORDS, max_size=6).map(lambda found: tuple(found.items())),
    drop_env=st.lists(_NAMES, unique=True, max_size=4).map(tuple),
    uid=_COUNTS,
    gid=_COUNTS,
    commit=_WORDS,
    mounts=st.lists(
        st.builds(BindMount, _WORDS, _WORDS, st.booleans(), st.sampled_from(Propagation)), max_size=5
    ).map(tuple),
    limits=st.builds(
        Limits, _COUNTS, st.floats(0.01, 1024), _COUNTS, _COUNTS, _COUNTS, _COUNTS, st.integers(1, 20)
    ),
    network=st.sampled_from(["none", "egress"]),
    stop_grace_s=st.integers(0, 3600),
)


@given(SPECS, st.randoms(use_true_random=False))
def test_order_changes_neither_the_spec_nor_its_hash(spec: ContainerSpec, chance: random.Random) -> None:
    other = replace(
        spec,
        env=tuple(chance.sample(spec.env, len(spec.env))),
        drop_env=tuple(chance.sample(spec.drop_env, len(spec.drop_env))),
        mounts=tuple(chance.sample(spec.mounts, len(spec.mounts))),
    )
    assert other == spec
    assert spec_hash(other) == spec_hash(spec)


@given(SPECS)
def test_the_stored_form_is_the_spec(spec: ContainerSpec) -> None:
    assert load(dump(spec)) == spec
    assert spec_hash(load(dump(spec))) == spec_hash(spec)


@given(SPECS, SPECS)
def test_equal_hashes_are_equal_specs(one: ContainerSpec, other: ContainerSpec) -> None:
    assert (spec_hash(one) == spec_hash(other)) == (one == other)


@given(
    st.dictionaries(st.sampled_from(["A", "B", "C", "LANG"]), st.sampled_from(["1", "2"]), max_size=4),
    st.lists(st.sampled_from(["LD_PRELOAD", "PYTHONPATH", "TERM", "PATH"]), unique=True),
    st.randoms(use_true_random=False),
)
def test_a_manifest_in_another_order_updates_and_restarts_nobody(
    env: dict[str, str], image_env: list[str], chance: random.Random
) -> None:
    def built(declared: dict[str, str], arrived: list[str]) -> ContainerSpec:
        lines = [f'{key} = "{value}"' for key, value in declared.items()]
        text = 'name = "bob"\n[container]\ncommand = ["true"]\n[container.env]\n' + "\n".join(lines)
        image = ImageFacts("sha256:1", tuple(arrived), ())
        return build_spec(
            name("bob"), 1000, parse_manifest(text.encode(), name("bob")), COMMIT, image, Container(), LAYOUT
        )

    keys = chance.sample(sorted(env), len(env))
    record = agent("bob", applied=built(env, image_env))
    candidate = built({key: env[key] for key in keys}, chance.sample(image_env, len(image_env)))
    assert candidate == record.applied
    wanted = desired_state(record)
    running = container(record, EngineState.RUNNING, of=candidate)
    relabelled = replace(running.listed, labels=dict(reversed([*running.listed.labels.items()])))
    decided = plan(wanted, observed(wanted, replace(running, listed=relabelled)), NOW)
    assert decided.is_settled
    assert not decided.views[0].needs_update


_AGENTS = st.sampled_from(["ruth", "alice", "bob", "carol", "dan"]).map(name)


@given(
    st.dictionaries(_AGENTS, st.none() | _AGENTS), st.sampled_from(Shape), st.randoms(use_true_random=False)
)
def test_a_published_roster_reads_back_as_it_was(
    edges: dict[object, object], shape: Shape, chance: random.Random
) -> None:
    records = [agent(str(one), parent=str(up) if up else None) for one, up in edges.items()]
    wanted = desired_state(*records, published=b"[]\n", shape=shape)
    decided = plan(wanted, observed(wanted), NOW)
    shuffled = desired_state(*chance.sample(records, len(records)), published=b"[]\n", shape=shape)
    other = plan(shuffled, observed(shuffled), NOW)
    assert decided.roster == other.roster
    roster = decided.roster.roster if decided.roster is not None else Roster(Shape.FLAT, {})
    found = decode(encode(roster))
    assert isinstance(found, Present)
    assert found.roster == roster
    assert set(roster) == set(edges)
    assert all(one not in roster.ancestors(one) for one in roster)


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_the_reader_has_an_answer_to_anything(content: bytes) -> None:
    found = decode(content)
    if isinstance(found, Present):
        assert decode(encode(found.roster)) == Present(found.roster, encode(found.roster))
