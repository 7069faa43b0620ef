"""A settled hive leaves the engine alone, however often it looks."""

from __future__ import annotations

import pytest

from tests.support.fault_proxy import FaultProxy
from tests.support.hive_fixtures import MakeHive

pytestmark = pytest.mark.integration

PASSES = 200
MUTATIONS = ("POST", "DELETE", "PUT")


def _mutations(proxy: FaultProxy) -> int:
    return sum(proxy.count(method) for method in MUTATIONS)


def test_two_hundred_passes_without_change_do_nothing(make_hive: MakeHive) -> None:
    hive = make_hive(with_proxy=True).start().settle()
    assert hive.proxy is not None
    for name in ("a", "b", "c"):
        hive.spawn(name)
    hive.init("d")
    hive.verb("stop", "b")
    hive.settle()
    assert hive.hivectl("reconcile", "--dry-run").stdout == "nothing to do\n"
    assert hive.hivectl("reconcile").stdout == "nothing to do\n"
    before, lives, rows = _mutations(hive.proxy), hive.lives(), hive.rows()
    looked, seq = hive.proxy.count("GET", "^/containers/json"), hive.last_seq()
    for _ in range(PASSES):
        hive.reconcile()
    assert hive.proxy.count("GET", "^/containers/json") - looked >= PASSES
    assert _mutations(hive.proxy) == before
    assert hive.lives() == lives
    assert hive.rows() == rows
    assert hive.last_seq() == seq
    hive.restart().settle()
    assert _mutations(hive.proxy) == before
    assert hive.lives() == lives


def test_a_settled_pass_costs_one_list(make_hive: MakeHive) -> None:
    hive = make_hive(with_proxy=True).start().settle()
    assert hive.proxy is not None
    for name in ("a", "b", "c"):
        hive.spawn(name)
    hive.settle()
    hive.reconcile()
    lists, all_calls = hive.proxy.count("GET", "^/containers/json"), hive.proxy.count()
    for _ in range(10):
        hive.reconcile()
    assert hive.proxy.count() - all_calls == hive.proxy.count("GET", "^/containers/json") - lists


def test_the_image_imported_again_under_its_tag_is_an_update_to_ask_for(make_hive: MakeHive) -> None:
    hive = make_hive()
    repository, tag = f"hive-test-{hive.id}", "x"
    hive.raw.tag(hive.image, repository, tag)
    try:
        hive.write_settings({"container": {"image": f"{repository}:{tag}"}})
        hive.start().settle()
        hive.spawn("bob")
        lives = hive.lives()
        hive.raw.import_image_from_data(b"\0" * 1024, repository=repository, tag=tag)
        row = hive.wait_for(lambda: one if (one := hive.row("bob"))["needs_update"] else None, "needs_update")
        assert row["state"] == "running"
        assert "image" in hive.show("bob")["differing"]
        hive.raw.tag(hive.image, repository, tag, force=True)
        hive.wait_for(lambda: not hive.row("bob")["needs_update"], "the end of it")
        assert hive.lives() == lives
    finally:
        hive.raw.remove_image(f"{repository}:{tag}", force=True)
