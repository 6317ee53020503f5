"""Transactions of cards, made up after a published simulator, with its three kinds of fraud.

Customers, terminals and frauds are those of Y.-A. Le Borgne, W. Siblini, B. Lebichot, G. Bontempi: *Reproducible
Machine Learning for Credit Card Fraud Detection: Practical Handbook*, ULB, 2022, chapter 3
(https://fraud-detection-handbook.github.io/fraud-detection-handbook/, seen November 2026). The code is our own.
What differs, docs/fraud.md says: frauds at terminals and of customers began before the first day.
"""

import csv
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import numpy as np

FIRST = date(2018, 4, 1)
DAY = 86_400
COLUMNS = [
    "TRANSACTION_ID",
    "TX_DATETIME",
    "CUSTOMER_ID",
    "TERMINAL_ID",
    "TX_AMOUNT",
    "TX_TIME_SECONDS",
    "TX_TIME_DAYS",
    "TX_FRAUD",
    "TX_FRAUD_SCENARIO",
]
LARGE_AMOUNT = 220
TERMINAL_DAYS, TERMINALS_A_DAY = 28, 2 / 10_000
CUSTOMER_DAYS, CUSTOMERS_A_DAY = 14, 3 / 5_000


def simulate(folder: Path, customers: int, terminals: int, days: int, seed: int) -> None:
    """Write one CSV file a day to ``folder``, named by its date.

    The same arguments make the same files, and more days change none of those before them.
    """
    random = np.random.default_rng(seed)
    homes, shops = random.uniform(0, 100, (customers, 2)), random.uniform(0, 100, (terminals, 2))
    # As many terminals in reach, on average, as within 5 units among the 10,000 of the book.
    reach = 5 * np.sqrt(10_000 / terminals)
    near = [np.flatnonzero(np.hypot(*(shops - home).T) < reach) for home in homes]
    mean_amounts, a_day = random.uniform(5, 100, customers), random.uniform(0, 4, customers)
    bad_terminals = list(
        _compromised(np.random.default_rng([seed, 1]), terminals, TERMINALS_A_DAY, TERMINAL_DAYS, days)
    )
    bad_customers = list(
        _compromised(np.random.default_rng([seed, 2]), customers, CUSTOMERS_A_DAY, CUSTOMER_DAYS, days)
    )
    folder.mkdir(parents=True, exist_ok=True)
    number = 0
    for day in range(days):
        random = np.random.default_rng([seed, 3, day])
        rows = []
        for customer, count in enumerate(random.poisson(a_day)):
            # Around noon, and never on another day.
            seconds = random.normal(DAY / 2, 20_000, count).astype(int)
            for second in seconds[(seconds > 0) & (seconds < DAY) & bool(len(near[customer]))]:
                amount = random.normal(mean_amounts[customer], mean_amounts[customer] / 2)
                if amount < 0:
                    amount = random.uniform(0, 2 * mean_amounts[customer])
                rows.append((int(second), customer, int(random.choice(near[customer])), float(amount)))
        rows.sort()
        with (folder / f"{FIRST + timedelta(day)}.csv").open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(COLUMNS)
            for second, customer, terminal, usual in rows:
                amount, scenario = usual, 0
                if amount > LARGE_AMOUNT:
                    scenario = 1
                if terminal in bad_terminals[day]:
                    scenario = 2
                if customer in bad_customers[day] and random.random() < 1 / 3:
                    amount, scenario = 5 * amount, 3
                since = day * DAY + second
                midnight = datetime.combine(FIRST, time(), UTC)
                nanoseconds = (int(midnight.timestamp()) + since) * 1_000_000_000
                payment = (number, nanoseconds, customer, terminal, f"{amount:.2f}", since, day)
                table.writerow((*payment, int(scenario > 0), scenario))
                number += 1


def _compromised(
    random: np.random.Generator, count: int, share: float, duration: int, days: int
) -> Iterator[set[int]]:
    """Which of ``count`` are compromised on each day: every day a ``share`` of them, for ``duration`` days."""
    begun = [
        random.choice(count, min(count, random.poisson(share * count)), False) for _ in range(duration + days)
    ]
    for day in range(days):
        yield {int(number) for chosen in begun[day + 1 : day + 1 + duration] for number in chosen}
