"""The launcher of several pods, which bears less silence: what it does after it is the same, and comes sooner."""

from __future__ import annotations

from slipway.features.nodes.pod import group
from slipway.runtime.exits import run

SILENCE = 3.0


def main() -> int:
    """The launcher's own `main`."""
    group.SILENCE = SILENCE
    from slipway.features.nodes.pod import launcher

    return launcher.main()


if __name__ == "__main__":
    run(main)
