"""How much is left of a quota, and how much there ever is, where queues lend one another what they do not use.

After pkg/cache/scheduler/resource_node.go of github.com/kubernetes-sigs/kueue at commit ff69552 (22 August 2026):
what a holder does not lend is its own, and the rest is in its cohort, for all of that.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from offline.engine.queue_objects import ClusterQueue, FlavorResource, Holder, Quota

Used = Mapping[str, Mapping[FlavorResource, int]]
"""What is in use of each flavor's resources, by ClusterQueue."""


@dataclass(frozen=True)
class Quotas:
    """The quotas of ClusterQueues and cohorts, by name."""

    cluster_queues: Mapping[str, ClusterQueue]
    cohorts: Mapping[str, Holder]

    def _children(self, cohort: str) -> list[Holder]:
        holders: list[Holder] = [*self.cluster_queues.values(), *self._all_cohorts().values()]
        return [each for each in holders if each.parent == cohort and not self._is_cohort(each, cohort)]

    def _is_cohort(self, holder: Holder, cohort: str) -> bool:
        return not isinstance(holder, ClusterQueue) and holder.name == cohort

    def _all_cohorts(self) -> dict[str, Holder]:
        """Those with an object, and those that only others name."""
        named = {each.parent for each in (*self.cluster_queues.values(), *self.cohorts.values())} - {""}
        return {name: self.cohorts.get(name, Holder(name, "", {})) for name in (*named, *self.cohorts)}

    def _subtree(self, holder: Holder, key: FlavorResource) -> int:
        own = holder.quotas.get(key, Quota(0)).nominal
        if isinstance(holder, ClusterQueue):
            return own
        lent = (self._subtree(each, key) - self._kept(each, key) for each in self._children(holder.name))
        return own + sum(lent)

    def _kept(self, holder: Holder, key: FlavorResource) -> int:
        """What is not lent."""
        limit = holder.quotas.get(key, Quota(0)).lending
        return 0 if limit is None else max(0, self._subtree(holder, key) - limit)

    def _usage(self, holder: Holder, key: FlavorResource, used: Used) -> int:
        if isinstance(holder, ClusterQueue):
            return used_of(used, holder.name, key)
        children = self._children(holder.name)
        return sum(max(0, self._usage(each, key, used) - self._kept(each, key)) for each in children)

    def left(self, holder: Holder, key: FlavorResource, used: Used) -> int:
        """What is left of a quota, with what others lend."""
        subtree, usage = self._subtree(holder, key), self._usage(holder, key, used)
        if not holder.parent:
            return subtree - usage
        kept = self._kept(holder, key)
        above = self.left(self._all_cohorts()[holder.parent], key, used)
        limit = holder.quotas.get(key, Quota(0)).borrowing
        if limit is not None:
            above = min(above, subtree - kept - max(0, usage - kept) + limit)
        return max(0, kept - usage) + above

    def most(self, holder: Holder, key: FlavorResource, used: Used) -> int:
        """What there is of a quota where nobody uses any, with what others lend."""
        subtree = self._subtree(holder, key)
        if not holder.parent:
            return subtree
        found = self._kept(holder, key) + self.most(self._all_cohorts()[holder.parent], key, used)
        limit = holder.quotas.get(key, Quota(0)).borrowing
        return found if limit is None else min(subtree + limit, found)


def used_of(used: Used, queue: str, key: FlavorResource) -> int:
    """What is in use of a queue's flavor."""
    return used.get(queue, {}).get(key, 0)
