"""Labels and taints that the stack gives to nodes that are already there, and takes away when it is destroyed.

Both are server-side applied without force, so that what someone else has set is refused, never overwritten. Labels
are owned one by one: those of others stay, and one that somebody else sets to the same value stays when the stack
goes. Taints are one list with one owner (``listType: atomic`` in ``core/v1``). Seen with Kubernetes 1.34 and
Pulumi's provider 4.32 in November 2026: applying to a node that someone else gave other taints is a conflict, and
one that has exactly these keeps them when the stack goes; and whoever taints a node later, as the node controller
does when it is cordoned or not ready, owns the whole list from then on, and the stack's taint stays, too.
"""

import pulumi
import pulumi_kubernetes as k8s

from infra.clouds.existing.settings import ExistingPool


def mark_nodes(name: str, pool: ExistingPool, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """The patches that give the nodes of ``pool`` its labels and, where it says so, its taints."""
    patches: list[pulumi.Resource] = []
    for node in pool.label_nodes:
        # A patch of a node that is not there would create it.
        there = k8s.core.v1.Node.get(f"{name}-{node}", node, opts)
        on_node = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[there]))
        patches.append(
            k8s.core.v1.NodePatch(
                f"{name}-{node}-labels",
                metadata=k8s.meta.v1.ObjectMetaPatchArgs(name=node, labels=pool.selector),
                opts=on_node,
            )
        )
        if pool.taint_nodes:
            patches.append(
                k8s.core.v1.NodePatch(
                    f"{name}-{node}-taints",
                    metadata=k8s.meta.v1.ObjectMetaPatchArgs(name=node),
                    spec=k8s.core.v1.NodeSpecPatchArgs(
                        taints=[
                            k8s.core.v1.TaintPatchArgs(key=taint.key, value=taint.value, effect=taint.effect)
                            for taint in pool.taints
                        ]
                    ),
                    opts=on_node,
                )
            )
    return patches
