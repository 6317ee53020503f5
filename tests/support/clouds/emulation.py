"""What every emulator of a cloud owes to the platforms that its package declares."""

from slipway.infra.platform import Node
from tests.support.recording import Recording


def nodes_of(recording: Recording) -> dict[str, Node]:
    """The nodes, by pool, of everything declared, in its order, as an engine would ask for them."""
    (emulator,) = recording.emulators
    nodes = [
        node
        for resource in recording.resources
        for node in emulator.nodes(resource.type, resource.name, resource.inputs)
    ]
    return {node.pool: node for node in nodes}


def assert_nodes_are_as_promised(recording: Recording, cluster: str) -> None:
    """Each pool of the platform has the nodes that it says it has, and its selector finds only those."""
    nodes = nodes_of(recording)
    pools = recording.result[cluster].pools
    assert nodes.keys() == pools.keys()
    for name, pool in pools.items():
        node = nodes[name]
        assert node.cluster == pool.cluster == cluster
        assert pool.selector.items() <= node.labels.items()
        assert list(node.taints) == list(pool.taints)
        assert node.allocatable == pool.allocatable
        assert node.count == pool.max_nodes
        assert node.accelerator == pool.accelerator
        others = [nodes[other] for other in nodes if other != name]
        assert not any(pool.selector.items() <= other.labels.items() for other in others)


class NoFiles:
    """A store without any file."""

    def read_text(self, path: str) -> str:
        raise FileNotFoundError(path)

    def names(self, prefix: str) -> list[str]:  # noqa: ARG002
        return []
