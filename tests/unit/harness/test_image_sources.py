import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.harness.child import DEADLINE_S

SCRIPT = Path(__file__).parents[3] / "image/apt_sources.py"

DEB822 = """\
# The distribution's own
Types: deb deb-src
URIs: https://mirror.example/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By:
 -----BEGIN KEY-----
 .
 -----END KEY-----

Types: deb
URIs: https://mirror.example/security
Suites: bookworm-security
Components: main
Enabled: no

Types: deb-src
URIs: https://mirror.example/sources
Suites: bookworm
Components: main

Types: deb
URIs: https://vendor.example/apt
Suites: stable
Components: main
"""

DEB822_KEPT = """\
Types: deb
Uris: https://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: -----BEGIN KEY-----
 .
 -----END KEY-----
"""

ONE_LINE = """\
# deb http://old.example/debian bookworm main
deb [signed-by=/k.gpg arch=amd64] http://mirror.example/debian bookworm main contrib  # ours
deb-src http://mirror.example/debian bookworm main
deb\thttp://mirror.example/security bookworm-security main
deb http://vendor.example/apt nodistro main
deb http://mirror.example/debian bookwormish main
deb http://flat.example/ ./
nonsense
"""

ONE_LINE_KEPT = """\
deb [signed-by=/k.gpg arch=amd64] http://mirror.example/debian bookworm main contrib
deb\thttp://mirror.example/security bookworm-security main
"""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"sources.list.d/d.sources": DEB822}, {"host.sources": DEB822_KEPT}, id="deb822"),
        pytest.param({"sources.list": ONE_LINE}, {"host.list": ONE_LINE_KEPT}, id="one line"),
        pytest.param(
            {
                "sources.list": ONE_LINE,
                "sources.list.d/d.sources": DEB822,
                "sources.list.d/x.list.save": ONE_LINE,
            },
            {"host.list": ONE_LINE_KEPT, "host.sources": DEB822_KEPT},
            id="both, and a file apt does not read",
        ),
        pytest.param({}, {}, id="no sources"),
        pytest.param({"sources.list": "deb http://vendor.example/apt stable main\n"}, {}, id="only others"),
        pytest.param({"sources.list": "\xff\x00", "sources.list.d/e.sources": "\n\n:\n"}, {}, id="garbage"),
    ],
)
def test_keeps_the_release_and_drops_the_rest(
    tmp_path: Path, files: dict[str, str], expected: dict[str, str]
) -> None:
    apt, chosen = tmp_path / "apt", tmp_path / "chosen"
    (apt / "sources.list.d").mkdir(parents=True)
    chosen.mkdir()
    for name, text in files.items():
        (apt / name).write_text(text, encoding="latin-1")
    result = subprocess.run(
        [sys.executable, str(SCRIPT), "bookworm", str(chosen), "--apt", str(apt)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert {path.name: path.read_text() for path in chosen.iterdir()} == expected
    assert result.stdout == "".join(f"{chosen / name}\n" for name in expected)
    assert result.returncode == (0 if expected else 1)
    assert ("names the release bookworm" in result.stderr) is not bool(expected)
