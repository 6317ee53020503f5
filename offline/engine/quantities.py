"""Amounts of any resource as whole numbers: CPU in millicores, memory and storage in bytes, others counted."""

import math

from infra.schema.quantities import cpu_millicores, size_in_bytes

CPU = "cpu"
BYTES = ("memory", "ephemeral-storage", "hugepages-")
UNITS = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def amount(resource: str, quantity: object) -> int:
    """The amount that a quantity of ``resource`` is. Raises ValueError for what is no quantity."""
    text = str(quantity)
    return cpu_millicores(text) if resource == CPU else math.ceil(size_in_bytes(text))


def shown(resource: str, value: int) -> str:
    """An amount of ``resource`` as Kubernetes writes it."""
    if resource == CPU:
        return f"{value // 1000}" if value % 1000 == 0 else f"{value}m"
    if resource.startswith(BYTES):
        for unit, size in UNITS:
            if value and value % size == 0:
                return f"{value // size}{unit}"
    return str(value)
