"""A store whose disk takes no more: a file size limit stands for it, in a process of its own."""

import subprocess
import sys
from pathlib import Path

from hive_core.adapters.store import Store
from tests.support.plan_inputs import NOW

_FILL = """
import resource, signal, sys
from pathlib import Path
from hive_core.adapters.store import Store
from hive_core.domain.errors import StoreUnusable
from tests.support.plan_inputs import NOW
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
kept = 0
try:
    while True:
        store.add_event(NOW, "x", None, "y" * 1000, {})
        kept += 1
except StoreUnusable as fault:
    print(kept, fault.message)
print(len(store.events_after(0, 10_000)))
"""


def test_a_full_disk_is_an_error_with_a_sentence_and_loses_nothing_that_was_written(path: Path) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", _FILL, str(path)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told, left = done.stdout.splitlines()
    kept, _, message = told.partition(" ")
    assert message.startswith(f"cannot write the store {path}: ")
    assert int(kept) > 10
    assert left == kept
    again = Store(path)
    assert len(again.events_after(0, 10_000)) == int(kept)
    again.add_event(NOW, "x", None, "there is room again", {})
    again.close()
