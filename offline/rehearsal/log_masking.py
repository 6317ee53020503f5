"""Hides the secrets of a container in what it prints, as the runner of a step does in a cluster."""

from collections.abc import Callable, Iterable

from workloads.runtime.masking import Masker


def masking(secrets: Iterable[str]) -> Callable[[bytes], bytes]:
    """What makes of a line of a log one without these secrets."""
    hidden = [each for each in secrets if each]
    if not hidden:
        return lambda line: line
    masker = Masker(hidden)
    return lambda line: masker.mask(line.decode(errors="surrogateescape")).encode(errors="surrogateescape")
