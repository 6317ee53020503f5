"""Numbers as Kubernetes quantities."""

from infra.platform import GPU_RESOURCE, Resources


def requests(resources: Resources) -> dict[str, str]:
    """What a container asks for. CPU in millicores, sizes in MiB."""
    asked = {
        "cpu": f"{resources.cpu}m",
        "memory": mebibytes(resources.memory),
        "ephemeral-storage": mebibytes(resources.ephemeral_storage),
    }
    if resources.gpus:
        asked[GPU_RESOURCE] = str(resources.gpus)
    return asked


def limits(resources: Resources) -> dict[str, str]:
    """What a container may not exceed: all it asks for but CPU, of which it gets more while nobody wants it."""
    return {name: amount for name, amount in requests(resources).items() if name != "cpu"}


def mebibytes(amount: int) -> str:
    """A size in MiB."""
    return f"{amount}Mi"
