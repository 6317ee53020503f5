"""What a model is told of a transaction: its amount and time, and what came before it; no label."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import cos, log, log1p, pi, sin

import numpy as np
from transactions import Transaction

DAY, WEEK = 86_400, 7 * 86_400
LARGE_AMOUNT = 220
"""More than what any customer of the simulator spends; a bank has limits of its own."""

NAMES = (
    "amount",
    "log_amount",
    "large_amount",
    "deviation",
    "log_ratio",
    "log_ratio_to_highest",
    "customer_outlier",
    "customer_count_week",
    "customer_count_day",
    "customer_mean",
    "since_customer",
    "terminal_count_week",
    "terminal_count_day",
    "terminal_mean",
    "since_terminal",
    "terminal_is_new",
    "was_there_before",
    "hour_sin",
    "hour_cos",
    "night",
    "weekend",
)


@dataclass
class History:
    """What was seen so far. Amounts and times of the last week by customer and by terminal."""

    customers: defaultdict[str, deque[tuple[int, float]]] = field(default_factory=lambda: defaultdict(deque))
    terminals: defaultdict[str, deque[tuple[int, float]]] = field(default_factory=lambda: defaultdict(deque))
    visits: set[tuple[str, str]] = field(default_factory=set)
    # One transaction of 50 stands for what is usual before there is any.
    count: int = 1
    total: float = 50.0

    def add(self, row: Transaction) -> None:
        """Remember ``row`` for those that come later."""
        self.customers[row.customer].append((row.time, row.amount))
        self.terminals[row.terminal].append((row.time, row.amount))
        self.visits.add((row.customer, row.terminal))
        self.count += 1
        self.total += row.amount


def features(rows: Sequence[Transaction], history: History) -> np.ndarray:
    """A row of `NAMES` for each transaction, which are in the order of time; ``history`` has them afterwards.

    Transactions of one second do not know of each other.
    """
    table: list[list[float]] = []
    for _, group in groupby(rows, key=lambda row: row.time):
        same = list(group)
        table += [_of(row, history) for row in same]
        for row in same:
            history.add(row)
    return np.array(table, dtype=np.float64).reshape(len(rows), len(NAMES))


def _of(row: Transaction, history: History) -> list[float]:
    usual = history.total / history.count
    earlier = _last_week(history.customers, row.customer, row)
    at_terminal = _last_week(history.terminals, row.terminal, row)
    amounts = [amount for _, amount in earlier]
    # The median stays what it is when a thief has paid, and two usual amounts count beside a customer's own few.
    middle = (float(np.median(amounts)) * len(amounts) + 2 * usual) / (len(amounts) + 2) if amounts else usual
    highest = max(amounts, default=middle)
    hour = row.time % DAY / 3600
    return [
        row.amount,
        log1p(row.amount),
        float(row.amount > LARGE_AMOUNT),
        min(max((row.amount - middle) / (middle / 2 + 5), -3), 8),
        log((row.amount + 1) / (middle + 1)),
        log((row.amount + 1) / (highest + 1)),
        max(0.0, log((highest + 1) / (middle + 1)) - 0.9),
        log1p(len(earlier)),
        log1p(sum(time > row.time - DAY for time, _ in earlier)),
        log1p(middle),
        _since(earlier, row),
        log1p(len(at_terminal)),
        log1p(sum(time > row.time - DAY for time, _ in at_terminal)),
        log1p((sum(amount for _, amount in at_terminal) + 2 * usual) / (len(at_terminal) + 2)),
        _since(at_terminal, row),
        float(not at_terminal),
        float((row.customer, row.terminal) in history.visits),
        sin(hour * pi / 12),
        cos(hour * pi / 12),
        float(hour < 6),
        # 1970 began on a Thursday.
        float((row.time // DAY + 3) % 7 >= 5),
    ]


def _last_week(
    of: defaultdict[str, deque[tuple[int, float]]], name: str, row: Transaction
) -> deque[tuple[int, float]]:
    seen = of[name]
    while seen and seen[0][0] <= row.time - WEEK:
        seen.popleft()
    return seen


def _since(seen: deque[tuple[int, float]], row: Transaction) -> float:
    """The logarithm of the days since the last transaction: a week where there is none."""
    return log((row.time - seen[-1][0] if seen else WEEK) / DAY + 0.01)
