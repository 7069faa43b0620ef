"""An agent that counts its starts and keeps a heartbeat: a place to begin.

Three habits are worth keeping when you replace it:

- What has to survive lies in /state. It is replaced by renaming a finished
  file, so that a kill at any moment leaves the old content or the new.
- A stop is a SIGTERM. Here it is waited for together with the pause, so the
  program ends at once, and never in the middle of a step.
- One line on standard output per thing that happened: that is the agent's log.
"""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

STATE = Path(os.environ.get("HIVE_STATE", "/state"))
BEAT_S = float(os.environ.get("BEAT_S", "30"))
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}


def load(path: Path, default: dict[str, Any]) -> dict[str, Any]:
    """Return what was saved at `path`; a file that cannot be read as such is set aside."""
    try:
        saved = json.loads(path.read_bytes())
        if isinstance(saved, dict) and saved.keys() == default.keys():
            return saved
    except FileNotFoundError:
        return default
    except ValueError:
        pass
    path.replace(path.with_suffix(".unreadable"))
    print(f"{path.name} was unreadable: kept as {path.stem}.unreadable, beginning anew", flush=True)
    return default


def save(path: Path, content: dict[str, Any]) -> None:
    """Replace `path` by `content` in one step."""
    new = path.with_suffix(".new")
    with new.open("w") as file:
        json.dump(content, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def now() -> str:
    """Return the time in UTC, in words a log reader can sort."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def main() -> None:
    """Beat until told to stop."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    path = STATE / "heartbeat.json"
    heart = load(path, {"starts": 0, "beats": 0, "last_beat": None})
    heart["starts"] += 1
    print(f"start {heart['starts']}; last heartbeat: {heart['last_beat'] or 'never'}", flush=True)
    stop = None
    while stop is None:
        heart["beats"] += 1
        heart["last_beat"] = now()
        save(path, heart)
        stop = signal.sigtimedwait(STOP_SIGNALS, BEAT_S)
    print(f"stopping after {heart['beats']} beats in all", flush=True)


if __name__ == "__main__":
    main()
