"""bob counts primes in batches and saves a checkpoint after each one.

To sieve a batch he needs no more than the numbers up to the square root of its
end, so the checkpoint is three numbers however far he has come, and a restart
goes on from there.
"""

import json
import os
import signal
from math import isqrt
from pathlib import Path

STATE = Path(os.environ.get("HIVE_STATE", "/state"))
BATCH = int(os.environ.get("BATCH", "200000"))
PAUSE_S = float(os.environ.get("PAUSE_S", "5"))
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}

CHECKPOINT = STATE / "checkpoint.json"

# Below 2 there is no prime: `next` is the first number not looked at yet.
START = {"next": 2, "primes": 0, "largest": 0}


def primes_in(low: int, high: int) -> list[int]:
    """Return the primes p with low <= p < high, in order; `low` is at least 2."""
    is_prime = bytearray([1]) * (high - low)
    for divisor in range(2, isqrt(high - 1) + 1):
        first = max(divisor * divisor, -(-low // divisor) * divisor) - low
        is_prime[first::divisor] = bytes(len(range(first, high - low, divisor)))
    return [low + offset for offset, prime in enumerate(is_prime) if prime]


def load() -> dict[str, int]:
    """Return the checkpoint; a file that cannot be read as one is set aside, not overwritten."""
    try:
        checkpoint: dict[str, int] = json.loads(CHECKPOINT.read_bytes())
        if checkpoint.keys() == START.keys() and all(type(value) is int for value in checkpoint.values()):
            return checkpoint
    except FileNotFoundError:
        return START
    except (ValueError, AttributeError):
        pass
    CHECKPOINT.replace(CHECKPOINT.with_suffix(".unreadable"))
    print("the checkpoint was unreadable: kept as checkpoint.unreadable, counting anew", flush=True)
    return START


def save(checkpoint: dict[str, int]) -> None:
    """Replace the checkpoint in one step, so that a kill leaves the old one or the new."""
    new = CHECKPOINT.with_suffix(".new")
    with new.open("w") as file:
        json.dump(checkpoint, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(CHECKPOINT)


def count_batch(checkpoint: dict[str, int]) -> dict[str, int]:
    """Count one batch more and return the checkpoint after it."""
    end = checkpoint["next"] + BATCH
    end -= end % BATCH
    found = primes_in(checkpoint["next"], end)
    return {
        "next": end,
        "primes": checkpoint["primes"] + len(found),
        "largest": found[-1] if found else checkpoint["largest"],
    }


def main() -> None:
    """Count until told to stop."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    checkpoint = load()
    print(f"counting from {checkpoint['next']:,} with {checkpoint['primes']:,} primes known", flush=True)
    stop = None
    while stop is None:
        checkpoint = count_batch(checkpoint)
        save(checkpoint)
        print(f"{checkpoint['primes']:,} primes below {checkpoint['next']:,}", flush=True)
        stop = signal.sigtimedwait(STOP_SIGNALS, PAUSE_S)
    print(f"stopping at {checkpoint['next']:,}", flush=True)


if __name__ == "__main__":
    main()
