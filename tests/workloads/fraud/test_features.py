"""Features know what came before a transaction, and neither labels nor anything later."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

DAY = 86_400


def transactions(count: int, seed: int) -> list[Any]:
    from transactions import Transaction

    chosen = random.Random(seed)
    rows = [
        Transaction(
            time=chosen.randrange(10 * DAY),
            number=str(number),
            customer=str(chosen.randrange(8)),
            terminal=str(chosen.randrange(8)),
            amount=round(chosen.uniform(0, 300), 2),
            fraud=chosen.random() < 0.2,
            scenario=0,
        )
        for number in range(count)
    ]
    return sorted(rows)


def described(rows: list[Any]) -> np.ndarray:
    from features import History, features

    return features(rows, History())


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1000), at=st.integers(1, 79))
def test_what_happens_later_or_in_the_same_second_changes_no_feature(seed: int, at: int) -> None:
    rows = transactions(80, seed)
    now = rows[at].time
    later = [row._replace(amount=1_000 - row.amount, customer="0", terminal="1") for row in rows if row.time > now]
    same = [row._replace(amount=row.amount + 500) if row != rows[at] else row for row in rows if row.time == now]
    changed = [*(row for row in rows if row.time < now), *same, *later]
    before = [row for row in rows if row.time < now]
    place = changed.index(rows[at])
    assert (described(rows)[: len(before)] == described(changed)[: len(before)]).all()
    assert (described(rows)[at] == described(changed)[place]).all()
    assert (described([*before, rows[at]])[-1] == described(rows)[at]).all()


def test_labels_change_no_feature() -> None:
    rows = transactions(200, seed=1)
    assert (described(rows) == described([row._replace(fraud=not row.fraud, scenario=3) for row in rows])).all()


def test_days_one_after_the_other_are_as_one() -> None:
    from features import History, features

    rows, history = transactions(200, seed=2), History()
    parts = [features([row for row in rows if row.time // DAY == day], history) for day in range(10)]
    assert (np.vstack(parts) == described(rows)).all()


def test_features_say_what_their_names_say() -> None:
    from features import NAMES
    from transactions import Transaction

    rows = [
        Transaction(8 * DAY, "1", "anna", "shop", 10.0, False, 0),
        Transaction(8 * DAY + 3600, "2", "anna", "shop", 20.0, False, 0),
        Transaction(9 * DAY + 7200, "3", "anna", "kiosk", 300.0, True, 1),
        Transaction(20 * DAY, "4", "anna", "shop", 10.0, False, 0),
    ]
    table = [dict(zip(NAMES, row, strict=True)) for row in described(rows)]
    assert [row["large_amount"] for row in table] == [0, 0, 1, 0]
    assert [round(np.expm1(row["customer_count_week"])) for row in table] == [0, 1, 2, 0]
    assert [round(np.expm1(row["customer_count_day"])) for row in table] == [0, 1, 0, 0]
    assert [row["terminal_is_new"] for row in table] == [1, 0, 1, 1]
    assert [row["was_there_before"] for row in table] == [0, 1, 0, 1]
    assert [row["night"] for row in table] == [1, 1, 1, 1]
    assert table[2]["log_ratio"] > 1.5 > table[1]["log_ratio"]
    # The 9th and 10th of January 1970 were a Friday and a Saturday.
    assert [row["weekend"] for row in table] == [0, 0, 1, 0]
    assert table[1]["since_customer"] == pytest.approx(np.log(1 / 24 + 0.01))
