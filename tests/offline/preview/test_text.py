"""What a terminal shows."""

import io

import pytest
from rich.console import Console

from offline.evaluated import phrasing
from offline.evaluated.model import (
    Changes,
    CostDifference,
    CostLine,
    Preview,
    PropertyChange,
    RunCost,
    StackPreview,
)
from offline.preview import tables
from offline.preview.text import show
from tests.offline.preview.samples import broken, changes, cost, finding, preview, stack


def shown(content: Preview, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show(content, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_says_what_changes_what_it_costs_and_what_is_wrong() -> None:
    text = shown(preview(stack()))
    assert "against origin/main (1a2b3c4)" in text
    assert "± dev-train-0  NodePool  replaced" in text
    assert "nodeConfig.diskType0: a|b → c`d  replaces it" in text
    assert "mnist-train  Job  runs again  on pool train, 1 nvidia-tesla-t4: workloads/mnist/train.py" in text
    assert "$131.40 (+$14.60)" in text
    assert "gcp-dev: everybody can read it\n  error: public-bucket  store\n  fix: enforce" in text
    assert "suppressed until 2027-01-01: unprotected-stack" in text
    assert "NVIDIA_T4_GPUS" in text


def test_a_stack_without_a_base_is_shown_whole() -> None:
    text = shown(preview(stack().model_copy(update={"changes": None, "difference": None}), base=""))
    assert "`pulumi up` from nothing comes to its first Job after about 5 min and takes about 23 min." in text
    assert "It waits for dev (5 min) → mnist-train (19 min)" in text
    assert "All Jobs once: $0.42." in text


def test_markup_in_a_value_is_shown_as_it_is() -> None:
    text = shown(preview(StackPreview(stack="[red]dev[/]", remarks=["[bold]x[/]"])))
    assert "[red]dev[/]" in text
    assert "[bold]x[/]" in text


def test_a_sum_with_unknown_prices_is_a_lower_bound_and_says_so() -> None:
    text = shown(preview(StackPreview(stack="dev", cost=cost(("other",)))))
    assert "≥ $131.40" in text
    assert "Unknown, and in no sum: other." in text


def test_a_sum_without_unknown_prices_is_not_a_lower_bound() -> None:
    known = cost(("gpu",))
    (line,) = [line for line in known.lines if line.resource == "gpu"]
    lines = [line.model_copy(update={"idle_count": 0})]
    text = shown(preview(StackPreview(stack="dev", cost=known.model_copy(update={"lines": lines}))))
    assert "Idle: $0.18 an hour, $131.40 a month. Every pool at its maximum: ≥ $1.50 an hour." in text


def test_an_unknown_difference_is_shown() -> None:
    unknown = CostDifference(idle_hourly=None, idle_monthly=None, most_hourly=None)
    text = shown(preview(stack().model_copy(update={"difference": unknown})))
    assert "Idle: $0.18 (change unknown) an hour, $131.40 (change unknown) a month." in text


@pytest.mark.parametrize(
    ("run", "written"),
    [
        (RunCost(dollars=3), "$3.00"),
        (RunCost(dollars=3, paid_anyway=1), "$3.00 ($1.00 paid anyway)"),
        (RunCost(dollars=3, paid_anyway=3), "$3.00 (all paid anyway)"),
        (RunCost(dollars=3, unknown=["the price of a disk (pool gpu)"]), "≥ $3.00"),
        (RunCost(dollars=None, unknown=["the price of pool gpu"]), "unknown"),
        (None, ""),
    ],
)
def test_the_cost_of_jobs_is_a_lower_bound_if_a_price_is_missing(run: RunCost | None, written: str) -> None:
    assert tables.run_figure(cost().model_copy(update={"run": run})) == written


def test_charges_missing_in_the_cost_of_jobs_are_named() -> None:
    run = RunCost(dollars=3, unknown=["the price of a disk (pool gpu)"])
    text = shown(preview(stack().model_copy(update={"cost": cost().model_copy(update={"run": run})})))
    assert "≥ $3.00" in text
    assert "The cost of its Jobs is without the price of a disk (pool gpu)." in text


@pytest.mark.parametrize(
    ("basis", "heading"),
    [
        ("limit", "Their cost, at their time limits"),
        ("measured", "Their cost, by their last run"),
        ("rehearsed", "Their cost, by rehearsals on a CPU"),
    ],
)
def test_the_basis_of_all_costs_of_jobs_is_in_the_heading(basis: str, heading: str) -> None:
    assert heading in shown(preview(stack()).model_copy(update={"basis": basis}))


def test_a_cost_without_known_prices_is_unknown_and_not_free() -> None:
    nothing = cost(("nodes of edge",)).model_copy(
        update={"idle_hourly": None, "idle_monthly": None, "most_hourly": None, "run": None, "lines": []}
    )
    text = shown(preview(StackPreview(stack="onprem", cost=nothing)))
    assert "$" not in text
    assert ["onprem", "0", "resources", "unknown", "unknown", "1", "to", "3", "none"] in map(
        str.split, text.splitlines()
    )
    assert "Nothing here has a known price: nodes of edge." in text


@pytest.mark.parametrize(
    ("stale", "said"),
    [
        (["2024-07-01", "2026-01-05"], "Prices older than 90 days, those of 2 sources, the oldest of 2024-07-01."),
        (["undated, read 2026-11-21"], "Prices of unknown age, those of 1 source."),
        (
            ["2024-07-01", "undated, read 2026-11-21"],
            "the oldest of 2024-07-01; of unknown age, those of 1 source.",
        ),
    ],
)
def test_old_and_undated_prices_are_distinguished(stale: list[str], said: str) -> None:
    old = cost().model_copy(update={"stale": [f"https://prices.example ({each})" for each in stale]})
    assert said in shown(preview(StackPreview(stack="dev", cost=old)))


def test_a_broken_stack_lists_its_problems() -> None:
    text = shown(preview(broken()))
    assert "slipway:store.kind: 'gsc'" in text
    assert "fix: write `gcs`" in text


def test_digests_are_hidden_beside_other_properties() -> None:
    def run(*paths: tuple[str, str, str]) -> str:
        change = (
            changes()
            .resources[0]
            .model_copy(
                update={
                    "properties": [PropertyChange(path=path, before=old, after=new) for path, old, new in paths]
                }
            )
        )
        return shown(preview(StackPreview(stack="dev", changes=Changes(resources=[change]))))

    name = ("metadata.name", "train-0123456789", "train-abcdef0123")
    both = run(name, ("spec.image", "a:1", "a:2"))
    assert "spec.image: a:1 → a:2" in both
    assert "abcdef0123" not in both
    assert "metadata.name: train-0123456789 → train-abcdef0123" in run(name)


def heading(content: Preview) -> str:
    return next(line for line in shown(content).splitlines() if line.startswith("Stack "))


def test_the_table_has_no_column_without_content() -> None:
    assert "Changes" in heading(preview(stack()))
    assert "Jobs that run" in heading(preview(stack()))
    alone = preview(stack().model_copy(update={"changes": None}), base="")
    assert heading(alone).split()[:2] == ["Stack", "Program"]
    assert "Jobs that run" not in heading(alone)
    assert heading(preview(StackPreview(stack="dev"), base="")).split() == ["Stack", "Program", "Findings"]


def test_an_unchanged_stack_takes_one_line() -> None:
    here = stack()
    same = here.model_copy(
        update={
            "changes": Changes(unchanged=74),
            "findings": [finding()],
            "difference": CostDifference(idle_hourly=0, idle_monthly=0, most_hourly=0),
            "cost": here.cost
            and here.cost.model_copy(
                update={"lines": [line.model_copy(update={"new": False}) for line in here.cost.lines]}
            ),
            "quotas": [quota.model_copy(update={"new": False}) for quota in here.quotas],
        }
    )
    text = shown(preview(same))
    assert "error: public-bucket" in text
    assert "NVIDIA_T4_GPUS" not in text
    assert "e2-standard-4" not in text


def test_a_changed_encrypted_value_is_not_reported_as_no_change() -> None:
    rotated = Changes(unchanged=74, remarks=["the encrypted configuration x:token is another one"])
    text = shown(preview(StackPreview(stack="dev", changes=rotated)))
    assert "no changes to be seen" in text
    assert "no changes to be seen" not in shown(preview(StackPreview(stack="dev", changes=Changes(unchanged=74))))


def test_a_narrow_terminal_cuts_off_nothing() -> None:
    text = shown(preview(stack("a-stack-with-a-long-name")), width=60)
    assert "…" not in text.replace("gcloud compute …", "")
    assert "$131.40" in text.replace("\n", "")


def test_a_command_is_not_broken() -> None:
    see = "gcloud compute regions describe us-central1 --format='table(quotas.metric,quotas.limit)'"
    quotas = [quota.model_copy(update={"see": see}) for quota in stack().quotas]
    assert f"\n    {see}\n" in shown(preview(stack().model_copy(update={"quotas": quotas})), width=60)


def test_findings_say_how_many_of_them_are_new() -> None:
    old, new = finding().model_copy(update={"new": False}), finding(name="other")
    assert "1 error  " in shown(preview(StackPreview(stack="dev", findings=[new]))).replace(
        "error \n", "error  \n"
    )
    text = shown(preview(StackPreview(stack="dev", findings=[old, new])))
    assert "2 errors (1 new)" in text
    assert "error, not new: public-bucket  store" in text
    assert "1 error (none new)" in shown(preview(StackPreview(stack="dev", findings=[old])))


def test_resources_without_a_price_are_listed_once() -> None:
    line = CostLine(resource="edge", what="your own nodes", hourly=None, idle=None, most=None)
    nothing = cost(("edge: your own nodes",)).model_copy(update={"idle_hourly": None, "lines": [line]})
    assert shown(preview(StackPreview(stack="onprem", cost=nothing))).count("your own nodes") == 1


@pytest.mark.parametrize(
    ("amount", "written"),
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
def test_an_amount_has_cents_or_two_digits_that_count(amount: float, written: str) -> None:
    assert phrasing.money(amount) == written


@pytest.mark.parametrize(
    ("needed", "unit", "written"),
    [(1, "addresses", "1 address"), (1, "GPUs", "1 GPU"), (2, "GPUs", "2 GPUs"), (1, "TiB", "1 TiB")],
)
def test_one_of_a_unit_is_singular(needed: float, unit: str, written: str) -> None:
    (quota,) = stack().quotas
    assert tables.needed(quota.model_copy(update={"needed": needed, "unit": unit})) == written
