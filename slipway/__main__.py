"""``python -m slipway``: the command `slipway`."""

from slipway.offline import end_quietly


def main() -> None:
    """The command; a Ctrl-C ends it without a traceback, also while it still imports."""
    end_quietly()
    from slipway.tools.command import app  # noqa: PLC0415

    app(prog_name="slipway")


if __name__ == "__main__":
    main()
