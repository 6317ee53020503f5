"""What has to come before what: the order of a graph's nodes, and the edges that others do not imply.

A graph is a mapping from each node to those that come after it.
"""

from collections.abc import Iterable, Mapping


def topological(after: Mapping[str, set[str]], nodes: Iterable[str]) -> list[str]:
    """``nodes`` and what comes after them, each behind all that it comes after, as far as there are no circles."""
    seen: set[str] = set()
    order: list[str] = []

    def visit(node: str) -> None:
        if node not in seen:
            seen.add(node)
            for each in sorted(after.get(node, ())):
                visit(each)
            order.append(node)

    for node in nodes:
        visit(node)
    return order[::-1]


def reduced(after: Mapping[str, set[str]], nodes: Iterable[str]) -> list[tuple[str, str]]:
    """The edges without those that others imply, and without those that close a circle."""
    order = topological(after, nodes)
    rank = {node: index for index, node in enumerate(order)}
    forward = {node: {each for each in after.get(node, ()) if rank[each] > rank[node]} for node in order}
    reachable: dict[str, set[str]] = {}
    for node in reversed(order):
        reachable[node] = set[str]().union(*(reachable[each] | {each} for each in forward[node]))
    return [
        (node, each)
        for node in order
        for each in sorted(forward[node], key=rank.__getitem__)
        if not any(each in reachable[via] for via in forward[node] if via != each)
    ]
