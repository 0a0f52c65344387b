"""``python -m bench.recording --vllm PATH -o FOLDER [NAME …]``: record scenarios one after another."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.recording.scenarios import SCENARIOS
from bench.recording.stages import Stage

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Record; return 1 with one line on stderr when a server fails."""
    parser = argparse.ArgumentParser(prog="python -m bench.recording", description=__doc__)
    known = ", ".join(SCENARIOS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {known} (default: all)")
    parser.add_argument("--vllm", type=Path, required=True, help="the vllm command of its own environment")
    parser.add_argument("--prometheus", type=Path, default=Path("/usr/bin/prometheus"))
    parser.add_argument("--node-exporter", type=Path, help="left out: no node series")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the bundles")
    parser.add_argument("--remark", default="", help="one more sentence for the notes of each bundle")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in SCENARIOS]:
        parser.error(f"no scenario {', '.join(unknown)}; there are {known}")
    # The engines take the cores from the top; the client and Prometheus keep to the first.
    os.sched_setaffinity(0, {0})
    stage = Stage(
        options.vllm, options.prometheus, options.node_exporter, options.output, options.seed, options.remark
    )
    try:
        for name in options.names or SCENARIOS:
            print(f"recording {name}", file=sys.stderr, flush=True)
            print(stage.record(SCENARIOS[name]), flush=True)
    except (RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        stage.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
