"""The simulated transactions: customers, terminals and the three kinds of fraud of the published simulator."""

from collections import Counter, defaultdict
from pathlib import Path
from statistics import mean

import pytest

from tests.workloads.fraud.programs import COLUMNS, read_day, run

pytestmark = pytest.mark.slow

Rows = list[dict[str, str]]
CUSTOMERS, TERMINALS, DAYS = 2_000, 4_000, 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("simulated")
    run("prepare.py", "--customers", CUSTOMERS, "--terminals", TERMINALS, "--days", DAYS, "--output", output)
    return output / "transactions"


@pytest.fixture(scope="module")
def rows(folder: Path) -> Rows:
    return [row for path in sorted(folder.iterdir()) for row in read_day(path)]


def amounts(rows: Rows, scenario: str) -> list[float]:
    return [float(row["TX_AMOUNT"]) for row in rows if row["TX_FRAUD_SCENARIO"] == scenario]


def test_a_file_a_day_has_the_columns_of_the_real_ones(folder: Path, rows: Rows) -> None:
    assert [path.name for path in sorted(folder.iterdir())] == [
        f"2018-04-0{day}.csv" for day in range(1, DAYS + 1)
    ]
    assert all(list(row) == COLUMNS for row in rows)
    assert len({row["TRANSACTION_ID"] for row in rows}) == len(rows)
    times = [int(row["TX_DATETIME"]) for row in rows]
    assert times == sorted(times)


def test_customers_pay_about_twice_a_day_at_terminals_near_them(rows: Rows) -> None:
    assert len(rows) == pytest.approx(2 * CUSTOMERS * DAYS, rel=0.05)
    seen = defaultdict(set)
    for row in rows:
        seen[row["TERMINAL_ID"]].add(row["CUSTOMER_ID"])
    assert max(len(terminals) for terminals in seen.values()) < CUSTOMERS / 50
    assert mean(float(row["TX_AMOUNT"]) for row in rows if row["TX_FRAUD"] == "0") == pytest.approx(53, abs=4)


def test_every_large_amount_is_a_fraud_and_no_other_of_that_kind(rows: Rows) -> None:
    assert min(amounts(rows, "1")) > 220
    assert max(amounts(rows, "0")) <= 220


def test_all_that_is_paid_at_a_compromised_terminal_is_fraud(rows: Rows) -> None:
    compromised = {(row["TX_TIME_DAYS"], row["TERMINAL_ID"]) for row in rows if row["TX_FRAUD_SCENARIO"] == "2"}
    theirs = [row for row in rows if (row["TX_TIME_DAYS"], row["TERMINAL_ID"]) in compromised]
    assert all(row["TX_FRAUD"] == "1" for row in theirs)
    assert len(theirs) > len(compromised)
    # 2 of 10,000 each day, for 28 days: those that began before the first day are among them.
    share = mean(row["TX_FRAUD_SCENARIO"] == "2" for row in rows)
    assert share == pytest.approx(28 * 2 / 10_000, rel=0.5)


def test_a_third_of_what_a_compromised_customer_pays_is_fivefold(rows: Rows) -> None:
    compromised = {row["CUSTOMER_ID"] for row in rows if row["TX_FRAUD_SCENARIO"] == "3"}
    theirs = [row for row in rows if row["CUSTOMER_ID"] in compromised]
    usual = [float(row["TX_AMOUNT"]) for row in theirs if row["TX_FRAUD"] == "0"]
    assert mean(amounts(rows, "3")) == pytest.approx(5 * mean(usual), rel=0.35)
    assert 0.1 < mean(row["TX_FRAUD_SCENARIO"] == "3" for row in theirs) < 0.5


def test_each_day_has_frauds_of_each_kind(rows: Rows) -> None:
    days = Counter((row["TX_TIME_DAYS"], row["TX_FRAUD_SCENARIO"]) for row in rows)
    assert all(days[str(day), kind] for day in range(DAYS) for kind in ("2", "3"))
    share = mean(row["TX_FRAUD"] == "1" for row in rows)
    assert 0.005 < share < 0.02


def test_a_seed_makes_the_same_transactions_and_another_one_others(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run("prepare.py", "--customers", 50, "--terminals", 100, "--days", 3, "--seed", seed,
            "--output", tmp_path / name)  # fmt: skip
    files = {
        name: {
            str(path.relative_to(tmp_path / name)): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }
        for name in "abc"
    }
    assert files["a"] == files["b"] != files["c"]
    assert len(files["a"]) == 3 + 3 + 2


def test_another_day_changes_no_earlier_one(tmp_path: Path) -> None:
    for days in (3, 4):
        run("prepare.py", "--customers", 50, "--terminals", 100, "--days", days, "--output", tmp_path / str(days))
    for name in ("transactions/2018-04-01.csv", "transactions/2018-04-03.csv", "days/2018-04-02.npz"):
        assert (tmp_path / "3" / name).read_bytes() == (tmp_path / "4" / name).read_bytes()
    assert (tmp_path / "4" / "days" / "2018-04-03.npz").exists()
