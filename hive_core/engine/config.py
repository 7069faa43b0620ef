"""From config repo to container spec: what an agent's main branch and the present image make of it.

Asked by `engine.observe` in every pass (cached: nothing is read twice for the same commit and image) and
by the verbs that apply config, which look afresh. A commit that cannot be used is a sentence, not an
exception: the agent is degraded and keeps what it runs on.
"""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import dataclass
from pathlib import PurePosixPath

from hive_core.adapters.agent_dirs import AgentDirs
from hive_core.adapters.clock import Clock
from hive_core.adapters.exports import export_commit
from hive_core.adapters.repos import ConfigRepos
from hive_core.domain.agents import AgentRecord
from hive_core.domain.errors import HiveError, ImageUnusable, InvalidManifest, RepoDamaged, Retryable
from hive_core.domain.names import AgentName
from hive_core.domain.observed import ImageFacts, ObservedRepo, Unknown
from hive_core.domain.ports import Engine
from hive_core.domain.spec import ContainerSpec
from hive_core.manifest import FILE_NAME, MAX_BYTES, Manifest, parse_manifest
from hive_core.planning.container import Layout, build_spec
from hive_core.settings import Settings

log = logging.getLogger(__name__)

_IMAGE_KEPT_S = 300.0
_MAX_CACHED = 4096
_FAULT_KEPT_S = 30.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """The spec an update would apply, or why main cannot be used; both empty when that is unknown."""

    spec: ContainerSpec | None
    fault: str = ""


class ConfigSource:
    """Reads manifests and builds specs. Thread-safe."""

    def __init__(
        self, settings: Settings, repos: ConfigRepos, dirs: AgentDirs, engine: Engine, clock: Clock
    ) -> None:
        self._settings = settings
        self._repos = repos
        self._dirs = dirs
        self._engine = engine
        self._clock = clock
        self._lock = threading.Lock()
        self._layout = Layout(
            settings.hive.id,
            PurePosixPath(settings.paths.data) / "agents",
            PurePosixPath(settings.paths.run),
        )
        self._manifests: dict[tuple[AgentName, str], tuple[float, Manifest | str]] = {}
        self._images: dict[str, tuple[float, ImageFacts | ImageUnusable]] = {}
        self._specs: dict[tuple[str, str, str], Candidate] = {}

    def candidate(self, record: AgentRecord, repo: ObservedRepo | None) -> Candidate:
        """Return what main would give an agent now. Never raises; an absent engine leaves it unknown."""
        if repo is None:
            return Candidate(None, "its config repo is gone")
        if repo.main is None:
            return Candidate(None, repo.fault)
        try:
            manifest = self._manifest(record.name, repo.main)
            if isinstance(manifest, str):
                return Candidate(None, manifest)
            return self._build(record, manifest, repo.main)
        except Retryable:
            return Candidate(None)
        except HiveError as fault:
            return Candidate(None, fault.message)

    def prepare(self, record: AgentRecord) -> ContainerSpec:
        """Return the spec of main as it is this moment, its config exported and ready to be mounted.

        Raises the error that says why main cannot be used.
        """
        commit = self._main(record.name)
        manifest = self._manifest(record.name, commit)
        if isinstance(manifest, str):
            raise InvalidManifest(manifest, f"push a fix: hivectl push {record.name} DIR")
        facts = self._image(manifest)
        spec = build_spec(
            record.name, record.uid, manifest, commit, facts, self._settings.container, self._layout
        )
        self._dirs.refresh(record.name, record.uid)
        self.export(record.name, spec.commit)
        return spec

    def export(self, name: AgentName, commit: str) -> None:
        """Make sure the immutable export of a config commit exists."""
        export_commit(self._repos, name, commit, self._dirs.paths(name).config_dir(commit))

    def manifest(self, name: AgentName, commit: str) -> Manifest | str:
        """Return the manifest at a commit, or the sentence that says what is wrong with it."""
        return self._manifest(name, commit)

    def forget_images(self) -> None:
        """Look every image up again: the engine said that one changed."""
        with self._lock:
            self._images.clear()

    def _main(self, name: AgentName) -> str:
        found = self._repos.observe()
        if isinstance(found, Unknown):
            raise RepoDamaged(f"cannot read the config repo of {name}: {found.reason}")
        repo = found.repos.get(name)
        if repo is None or repo.main is None:
            raise RepoDamaged(
                f"cannot read the config repo of {name}: {repo.fault if repo else 'it is gone'}"
            )
        return repo.main

    def _manifest(self, name: AgentName, commit: str) -> Manifest | str:
        """Return the manifest, or why there is none, from memory where it was read before.

        What a commit says never changes; whether it can be read may, so that answer is kept for a while
        only, and a slow repo costs a pass nothing meanwhile.
        """
        known = self._manifests.get((name, commit))
        if known is not None and self._clock.monotonic() < known[0]:
            return known[1]
        found, kept_s = self._read_manifest(name, commit)
        with self._lock:
            if len(self._manifests) > _MAX_CACHED:
                self._manifests.clear()
            self._manifests[name, commit] = (self._clock.monotonic() + kept_s, found)
        return found

    def _read_manifest(self, name: AgentName, commit: str) -> tuple[Manifest | str, float]:
        """Return the manifest, or the sentence that says what is wrong, and for how long that holds."""
        try:
            content = self._repos.read_file(name, commit, FILE_NAME, MAX_BYTES)
            return parse_manifest(content, name), math.inf
        except InvalidManifest as fault:
            return _in_full(fault), math.inf
        except HiveError as fault:
            log.warning("config of %s: %s %s", name, fault.message, getattr(fault, "detail", ""))
            return _in_full(fault), _FAULT_KEPT_S
        except Exception:
            # Written by others: what it trips over here must cost this agent alone, never everybody's pass.
            log.exception("the manifest of %s at %s trips a defect of hive", name, commit)
            return f"{FILE_NAME} trips a defect of hive; the daemon's log has the details", math.inf

    def _build(self, record: AgentRecord, manifest: Manifest, commit: str) -> Candidate:
        facts = self._image(manifest)
        key = (record.incarnation, commit, facts.id)
        known = self._specs.get(key)
        if known is None:
            spec = build_spec(
                record.name, record.uid, manifest, commit, facts, self._settings.container, self._layout
            )
            known = Candidate(record.applied if spec == record.applied else spec)
            with self._lock:
                if len(self._specs) > _MAX_CACHED:
                    self._specs.clear()
                self._specs[key] = known
        return known

    def _image(self, manifest: Manifest) -> ImageFacts:
        """Resolve the image, remembering answers and refusals for a while."""
        reference = manifest.container.image or self._settings.container.image
        known = self._images.get(reference)
        if known is None or self._clock.monotonic() - known[0] > _IMAGE_KEPT_S:
            try:
                found: ImageFacts | ImageUnusable = self._engine.resolve_image(reference)
            except ImageUnusable as fault:
                found = fault
            known = (self._clock.monotonic(), found)
            with self._lock:
                self._images[reference] = known
        if isinstance(known[1], ImageUnusable):
            raise known[1]
        return known[1]


def _in_full(fault: HiveError) -> str:
    return f"{fault.message}; {fault.hint}" if fault.hint else fault.message
