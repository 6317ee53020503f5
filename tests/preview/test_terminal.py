"""What a terminal shows, and the figures of every form."""

from collections.abc import Mapping
from typing import Any

import pytest

from slipway.evaluated import phrasing
from slipway.evaluated.model import (
    Changes,
    CostDifference,
    CostLine,
    Failure,
    Preview,
    PropertyChange,
    RunCost,
    StackPreview,
)
from slipway.preview import tables
from tests.preview.samples import broken, changes, cost, finding, preview, printed, stack

UNPRICED: Mapping[str, Any] = dict.fromkeys(("idle_hourly", "idle_monthly", "most_hourly", "run")) | {"lines": []}


def test_says_what_changes_what_it_costs_and_what_is_wrong() -> None:
    text = printed(preview(stack()))
    for part in (
        "against origin/main (1a2b3c4)",
        "± dev-train-0  NodePool  replaced",
        "nodeConfig.diskType0: a|b → c`d replaces it",
        "mnist-train  Job  runs again  on pool train, 1 nvidia-tesla-t4: workloads/mnist/train.py",
        "$131.40 (+$14.60)",
        "Suppressed until 2027-01-01: unprotected-stack",
        "NVIDIA_T4_GPUS",
    ):
        assert part in text
    verdict = [line.strip() for line in text.splitlines()[1:4]]
    assert verdict[0].startswith("gcp-dev: ")
    assert verdict[1] == "error: public-bucket store"
    assert "publicAccessPrevention" in verdict[2]


def test_a_stack_without_a_base_is_shown_whole() -> None:
    text = printed(preview(stack().model_copy(update={"changes": None, "difference": None}), base=""))
    for part in ("$131.40", "$0.42.", "NVIDIA_T4_GPUS"):
        assert part in text


def test_markup_in_a_value_is_shown_as_it_is() -> None:
    text = printed(preview(StackPreview(stack="[red]dev[/]", remarks=["[bold]x[/]"])))
    assert "[red]dev[/]" in text
    assert "[bold]x[/]" in text


def test_a_sum_with_unknown_prices_is_a_lower_bound_and_says_so() -> None:
    text = printed(preview(StackPreview(stack="dev", cost=cost(("other",)))))
    assert "≥ $131.40" in text
    assert "in no sum: other." in text
    known = cost(("gpu",))
    lines = [line.model_copy(update={"idle_count": 0}) for line in known.lines if line.resource == "gpu"]
    text = printed(preview(StackPreview(stack="dev", cost=known.model_copy(update={"lines": lines}))))
    assert "≥ $131.40" not in text
    assert "≥ $1.50 an hour" in text


def test_an_unknown_difference_is_shown() -> None:
    unknown = CostDifference(idle_hourly=None, idle_monthly=None, most_hourly=None)
    text = printed(preview(stack().model_copy(update={"difference": unknown})))
    assert "$0.18 (change unknown)" in text
    assert "$131.40 (change unknown)" in text


@pytest.mark.parametrize(
    ("run", "figure"),
    [
        (RunCost(dollars=3), "$3.00"),
        (RunCost(dollars=3, paid_anyway=1), "$3.00 ($1.00 paid anyway)"),
        (RunCost(dollars=3, paid_anyway=3), "$3.00 (all paid anyway)"),
        (RunCost(dollars=3, unknown=["the price of a disk (pool gpu)"]), "≥ $3.00"),
        (RunCost(dollars=None, unknown=["the price of pool gpu"]), "unknown"),
        (None, ""),
    ],
)
def test_the_cost_of_jobs_is_a_lower_bound_if_a_price_is_missing(run: RunCost | None, figure: str) -> None:
    known = cost().model_copy(update={"run": run})
    assert tables.run_figure(known) == figure
    text = printed(preview(stack().model_copy(update={"cost": known})))
    if run is not None and run.dollars is not None:
        assert all(missing in text for missing in run.unknown)


@pytest.mark.parametrize("basis", ["limit", "measured", "rehearsed"])
def test_the_basis_of_all_costs_of_jobs_is_in_the_heading(basis: str) -> None:
    content = preview(stack()).model_copy(update={"basis": basis})
    assert tables.BASES[basis] in tables.run_heading(content)
    assert tables.run_heading(content) in printed(content)


def test_a_cost_without_known_prices_is_unknown_and_not_free() -> None:
    nothing = cost(("nodes of edge",)).model_copy(update=UNPRICED)
    text = printed(preview(StackPreview(stack="onprem", cost=nothing)))
    assert "$" not in text
    assert ["onprem", "0", "resources", "unknown", "unknown", "1", "to", "3", "none"] in map(
        str.split, text.splitlines()
    )
    assert "nodes of edge" in text


@pytest.mark.parametrize(
    ("stale", "parts"),
    [
        (["2024-07-01", "2026-01-05"], ["older than 90 days, those of 2 sources, the oldest of 2024-07-01."]),
        (["undated, read 2026-11-21"], ["unknown age, those of 1 source."]),
        (["2024-07-01", "undated, read 2026-11-21"], ["the oldest of 2024-07-01;", "unknown age, those of 1"]),
    ],
)
def test_old_and_undated_prices_are_distinguished(stale: list[str], parts: list[str]) -> None:
    old = cost().model_copy(update={"stale": [f"https://prices.example ({date})" for date in stale]})
    text = printed(preview(StackPreview(stack="dev", cost=old)))
    assert all(part in text for part in parts)
    assert ("older than" in text, "unknown age" in text) == (
        any(date[0].isdigit() for date in stale),
        any(not date[0].isdigit() for date in stale),
    )


def test_a_broken_stack_lists_its_problems() -> None:
    text = printed(preview(broken()))
    assert "slipway:store.kind: 'gsc'" in text
    assert "write `gcs`" in text


def test_digests_are_hidden_beside_other_properties() -> None:
    def show(*paths: tuple[str, str, str]) -> str:
        properties = [PropertyChange(path=path, before=old, after=new) for path, old, new in paths]
        change = changes().resources[0].model_copy(update={"properties": properties})
        return printed(preview(StackPreview(stack="dev", changes=Changes(resources=[change]))))

    name = ("metadata.name", "train-0123456789", "train-abcdef0123")
    both = show(name, ("spec.image", "a:1", "a:2"))
    assert "spec.image: a:1 → a:2" in both
    assert "abcdef0123" not in both
    assert "metadata.name: train-0123456789 → train-abcdef0123" in show(name)


def headings(content: Preview) -> list[str]:
    return next(line for line in printed(content).splitlines() if line.startswith("Stack ")).split()


def test_the_table_has_no_column_without_content() -> None:
    assert {"Changes", "Jobs"} <= set(headings(preview(stack())))
    alone = headings(preview(stack().model_copy(update={"changes": None}), base=""))
    assert alone[:2] == ["Stack", "Program"]
    assert "run" not in alone
    assert headings(preview(StackPreview(stack="dev"), base="")) == ["Stack", "Program", "Findings"]


def test_an_unchanged_stack_takes_one_line() -> None:
    here, known = stack(), cost()
    same = here.model_copy(
        update={
            "changes": Changes(unchanged=74),
            "findings": [finding()],
            "difference": CostDifference(idle_hourly=0, idle_monthly=0, most_hourly=0),
            "cost": known.model_copy(
                update={"lines": [line.model_copy(update={"new": False}) for line in known.lines]}
            ),
            "quotas": [quota.model_copy(update={"new": False}) for quota in here.quotas],
        }
    )
    text = printed(preview(same))
    assert "error: public-bucket" in text
    assert "NVIDIA_T4_GPUS" not in text
    assert "e2-standard-4" not in text


def test_a_changed_encrypted_value_is_not_reported_as_no_change() -> None:
    rotated = Changes(unchanged=74, remarks=["the encrypted configuration x:token is another one"])
    words = [phrasing.state(StackPreview(stack="dev", changes=each)) for each in (rotated, Changes(unchanged=74))]
    assert words == ["no changes to be seen", "no changes"]
    assert words[0] in printed(preview(StackPreview(stack="dev", changes=rotated)))


def test_a_narrow_terminal_cuts_off_nothing() -> None:
    text = printed(preview(stack("a-stack-with-a-long-name")), width=60)
    assert "…" not in text.replace("gcloud compute …", "")
    assert "$131.40" in text.replace("\n", "")
    assert "a-stack-with-a-long-name " in text


def test_a_command_is_not_broken() -> None:
    see = "gcloud compute regions describe us-central1 --format='table(quotas.metric,quotas.limit)'"
    quotas = [quota.model_copy(update={"see": see}) for quota in stack().quotas]
    assert f"\n    {see}\n" in printed(preview(stack().model_copy(update={"quotas": quotas})), width=60)


def test_findings_of_a_stack_that_cannot_be_evaluated_are_not_none() -> None:
    failed = StackPreview(stack="dev", failures=[Failure(revision="head", message="cannot be read")])
    assert tables.columns(preview(failed), named=3)["Findings"] == ["not known"]
    known = failed.model_copy(update={"findings": [finding()]})
    assert tables.columns(preview(known), named=3)["Findings"] == ["1 error"]


def test_findings_say_how_many_of_them_are_new() -> None:
    old, new = finding().model_copy(update={"new": False}), finding(name="other")
    assert phrasing.finding_words([new]) == "1 error"
    assert phrasing.finding_words([old, new]) == "2 errors (1 new)"
    assert phrasing.finding_words([old]) == "1 error (none new)"
    text = printed(preview(StackPreview(stack="dev", findings=[old, new])))
    assert "2 errors (1 new)" in text
    assert "error, not new: public-bucket store" in text


def test_resources_without_a_price_are_listed_once() -> None:
    line = CostLine(resource="edge", what="your own nodes", hourly=None, idle=None, most=None)
    nothing = cost(("edge: your own nodes",)).model_copy(update={"idle_hourly": None, "lines": [line]})
    assert printed(preview(StackPreview(stack="onprem", cost=nothing))).count("your own nodes") == 1


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "$0.00"),
        (0.0014, "$0.0014"),
        (0.005, "$0.0050"),
        (0.0137, "$0.014"),
        (0.1, "$0.10"),
        (0.134, "$0.13"),
        (-14.6, "-$14.60"),
        (9347.2, "$9,347"),
    ],
)
def test_an_amount_has_cents_or_two_digits_that_count(amount: float, text: str) -> None:
    assert phrasing.money(amount) == text


@pytest.mark.parametrize(
    ("needed", "unit", "text"),
    [(1, "addresses", "1 address"), (1, "GPUs", "1 GPU"), (2, "GPUs", "2 GPUs"), (1, "TiB", "1 TiB")],
)
def test_one_of_a_unit_is_singular(needed: float, unit: str, text: str) -> None:
    (quota,) = stack().quotas
    assert tables.quota_words(quota.model_copy(update={"needed": needed, "unit": unit})) == text
