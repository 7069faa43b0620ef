"""Picks from the host's apt sources those the image's base can be built from.

Called by `scripts/build-image`. The image is built from the archive the host
itself is installed from, so that a private mirror works and no archive is named
here. A host often has more sources, for other vendors' packages; those have no
business in the image, and one of them being away must not stop the build.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

# The release itself and what its vendor publishes to repair it; neither backports nor previews.
POCKETS = ("", "-updates", "-security")

ONE_LINE = re.compile(r"deb\s+(?P<options>\[[^]]*\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>\S.*)")


def wanted_suites(codename: str) -> frozenset[str]:
    """Return the suites an image of the release `codename` is built from."""
    return frozenset(codename + pocket for pocket in POCKETS)


def kept_lines(text: str, suites: frozenset[str]) -> Iterator[str]:
    """Yield the entries of a one-line style file (`*.list`) that name a wanted suite."""
    for line in text.splitlines():
        entry = ONE_LINE.fullmatch(line.partition("#")[0].strip())
        if entry and entry["suite"] in suites:
            yield entry[0]


def kept_stanzas(text: str, suites: frozenset[str]) -> Iterator[str]:
    """Yield the stanzas of a deb822 style file (`*.sources`), reduced to binaries of wanted suites."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for stanza in re.split(r"\n\s*\n", "\n".join(lines)):
        fields = dict(fields_of(stanza))
        kept = [suite for suite in fields.get("suites", "").split() if suite in suites]
        if kept and "deb" in fields.get("types", "").split() and fields.get("enabled", "yes") != "no":
            fields |= {"types": "deb", "suites": " ".join(kept)}
            yield "\n".join(f"{name.title()}: {value}" for name, value in fields.items())


def fields_of(stanza: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of one deb822 stanza, names in lower case, continuation lines kept."""
    for field in re.split(r"\n(?!\s)", stanza.strip("\n")):
        name, colon, value = field.partition(":")
        if colon:
            yield name.strip().lower(), value.strip()


def source_files(apt: Path) -> list[Path]:
    """Return the source files apt would read below its folder `apt`, in apt's order."""
    parts = sorted((apt / "sources.list.d").glob("*"))
    return [path for path in (apt / "sources.list", *parts) if path.suffix in (".list", ".sources")]


def select(files: Iterable[Path], codename: str) -> tuple[str, str]:
    """Return the kept entries of all `files` as (one-line text, deb822 text)."""
    suites = wanted_suites(codename)
    lines: list[str] = []
    stanzas: list[str] = []
    for path in files:
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".sources":
            stanzas += kept_stanzas(text, suites)
        else:
            lines += kept_lines(text, suites)
    return "".join(f"{line}\n" for line in lines), "\n".join(f"{stanza}\n" for stanza in stanzas)


def main() -> None:
    """Write `host.list` and `host.sources` into a folder and print the path of each that is not empty."""
    parser = argparse.ArgumentParser(description="Select the apt sources of one release.")
    parser.add_argument("codename", help="the release, for example the host's VERSION_CODENAME")
    parser.add_argument("folder", type=Path, help="where the selected sources are written")
    parser.add_argument("--apt", type=Path, default=Path("/etc/apt"), help="apt's configuration folder")
    chosen = parser.parse_args()
    lines, stanzas = select(source_files(chosen.apt), chosen.codename)
    for name, text in (("host.list", lines), ("host.sources", stanzas)):
        if text:
            (chosen.folder / name).write_text(text, encoding="utf-8")
            sys.stdout.write(f"{chosen.folder / name}\n")
    if not lines and not stanzas:
        sys.exit(
            f"apt_sources.py: cannot build the image's base: no source in {chosen.apt} names the release"
            f" {chosen.codename}; add one (releases are matched by code name, not by 'stable' or the like)"
        )


if __name__ == "__main__":
    main()
