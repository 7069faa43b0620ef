"""Rescue: a shell in an agent whose own program does not run.

Called by the surfaces. A container like the agent's, its image and mounts, but with a program that only
waits; a command is run in it as the agent, and with the command it goes. Meanwhile passes keep their hands
off the agent, so its program is not started beside it. What a killed daemon leaves behind is removed by the
next one, from its own record of the id.
"""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack
from dataclasses import replace

from hive_core.adapters.store import Store
from hive_core.domain.agents import AgentRecord
from hive_core.domain.errors import Conflict, EngineRefused, HiveError
from hive_core.domain.ports import Engine, ExecRequest, ExecSession
from hive_core.domain.spec import LABEL_RESCUE
from hive_core.engine.apply import Applier
from hive_core.engine.dispatch import Dispatcher

log = logging.getLogger(__name__)

_FACT = "rescues"
_OPEN = "a rescue shell is open, and nothing is done until it ends"
_WAITING = ("sleep", "infinity")


class _RescueSession:
    """The command's session; ending it ends the container too."""

    def __init__(self, inner: ExecSession, cleanup: ExitStack) -> None:
        self._inner = inner
        self._cleanup = cleanup
        self.read = inner.read
        self.write = inner.write
        self.close_stdin = inner.close_stdin
        self.resize = inner.resize
        self.exit_code = inner.exit_code

    def terminate(self) -> None:
        """End the command, then the container. Idempotent."""
        try:
            self._inner.terminate()
        finally:
            self._cleanup.close()


class Rescue:
    """Opens rescue sessions, and removes what is left of them."""

    def __init__(
        self, hive_id: str, store: Store, engine: Engine, applier: Applier, dispatcher: Dispatcher
    ) -> None:
        self._hive_id = hive_id
        self._store = store
        self._engine = engine
        self._applier = applier
        self._dispatcher = dispatcher

    def open(self, record: AgentRecord, request: ExecRequest) -> ExecSession:
        """Start a command in a container like the agent's; `Conflict` for one that was never spawned."""
        if record.applied is None:
            text = f"cannot rescue {record.name}: it was never spawned, so it has no container to be like"
            raise Conflict(text, f"hivectl spawn {record.name}")
        spec = replace(record.applied, name=f"{record.applied.name}-rescue", command=_WAITING)
        with ExitStack() as stack:
            stack.enter_context(self._dispatcher.reserve(record.name, _OPEN))
            self._applier.make_ready(record.name, spec)
            container_id = self._engine.create(spec, {LABEL_RESCUE: self._hive_id})
            stack.callback(self._remove, container_id)
            self._remember(container_id)
            self._engine.start(container_id)
            session = self._engine.exec(container_id, request)
            return _RescueSession(session, stack.pop_all())

    def clean_up(self) -> None:
        """Remove the containers of rescues that a daemon before this one did not end."""
        for container_id in self._remembered():
            self._remove(container_id)

    def _remove(self, container_id: str) -> None:
        try:
            self._engine.kill(container_id)
            self._engine.remove(container_id)
        except EngineRefused as fault:
            if not fault.is_gone:
                log.warning("a rescue container is left: %s", fault.message)
                return
        except HiveError as fault:
            log.warning("a rescue container is left: %s", fault.message)
            return
        self._keep(self._remembered() - {container_id})

    def _remember(self, container_id: str) -> None:
        self._keep(self._remembered() | {container_id})

    def _remembered(self) -> frozenset[str]:
        kept = self._store.fact(_FACT)
        return frozenset() if kept is None else frozenset(json.loads(kept))

    def _keep(self, ids: frozenset[str]) -> None:
        self._store.set_fact(_FACT, json.dumps(sorted(ids)).encode() if ids else None)
