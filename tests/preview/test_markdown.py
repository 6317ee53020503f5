"""The comment: complete where it fits, never too long, and never without a stack."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.evaluated.model import Changes, Operation, PropertyChange, ResourceChange, StackPreview
from slipway.preview.differences import rows
from slipway.preview.markdown import JOBS, LIMIT, comment
from tests.preview.samples import broken, changes, cost, preview, stack


def balanced(text: str) -> bool:
    return text.count("<details") == text.count("</details>")


def test_shows_every_stack_in_the_table_and_in_a_section() -> None:
    text = comment(preview(stack("gcp-dev"), stack("aws-dev", properties=2)))
    assert text.startswith("## Preview of 2 stacks against `origin/main (1a2b3c4)`")
    for name in ("gcp-dev", "aws-dev"):
        assert f"| **{name}** |" in text
        assert f"<summary><b>{name}</b>" in text
    assert balanced(text)


def test_names_the_property_that_forces_a_replacement_and_the_jobs_that_run() -> None:
    text = comment(preview(stack()))
    assert "**replaced**" in text
    assert "`nodeConfig.diskType0`: <code>a&#124;b</code> → `` c`d `` **replaces it**" in text
    assert (
        "| **runs again** | `mnist-train` Job | on pool train, 1 nvidia-tesla-t4: workloads/mnist/train.py" in text
    )
    assert "&#36;131.40 (+&#36;14.60)" in text


@pytest.mark.parametrize(("count", "words"), [(JOBS, "job-0, job-1, job-2 on train"), (JOBS + 1, "4 on train")])
def test_a_few_jobs_are_named_in_the_table_and_more_are_counted(count: int, words: str) -> None:
    (run,), job = changes().runs, changes().resources[-1]
    updates = [{"name": f"job-{index}", "urn": f"{run.urn}-{index}"} for index in range(count)]
    jobs = Changes(
        resources=[job.model_copy(update=update) for update in updates],
        runs=[run.model_copy(update=update) for update in updates],
    )
    text = comment(preview(StackPreview(stack="dev", changes=jobs)))
    (row,) = [line for line in text.splitlines() if line.startswith("| **dev**")]
    assert f"| {words} |" in row


def test_a_job_that_runs_is_told_once() -> None:
    text = comment(preview(stack()))
    assert text.count("`mnist-train`") == 1
    assert "mnist-train-0123456789" not in text


def test_an_unknown_price_is_never_a_zero() -> None:
    text = comment(preview(StackPreview(stack="dev", cost=cost(("other",)))))
    (row,) = [line for line in text.splitlines() if "z9-huge" in line]
    assert row.count("unknown") == 3


def test_a_stack_that_cannot_be_evaluated_shows_its_problems_beside_the_others() -> None:
    text = comment(preview(broken(), stack()))
    assert "🟡 **wrong**: **cannot be evaluated** at the base" in text
    assert "`slipway:store.kind`" in text
    assert "write `gcs`" in text
    assert "<b>gcp-dev</b>" in text


def test_values_cannot_break_out_of_their_cell_or_mention_anybody() -> None:
    with_suppressed = stack()
    text = comment(preview(with_suppressed))
    assert "<code>a&#124;b</code> → `` c`d ``" in text
    assert "a sandbox @\u200beveryone" in text
    for line in text.splitlines():
        if line.startswith(("| **replaced**", "| **runs again**")):
            assert len(re.findall(r"(?<!\\)\|", line)) == 4


@pytest.mark.slow
def test_a_comment_that_is_too_long_folds_detail_of_the_largest_stack_first() -> None:
    small, large = stack("small", properties=3), stack("large", properties=50, resources=100)
    assert len(comment(preview(small, large), limit=10**9)) > LIMIT
    text = comment(preview(small, large))
    assert len(text) <= LIMIT
    assert balanced(text)
    assert "<b>small</b>" in text
    assert "<b>large</b>" in text
    assert "diskType2" in text
    assert "diskType40" not in text
    assert "left out to fit" in text


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, 800])
def test_no_stack_is_ever_left_out(count: int) -> None:
    names = [f"stack-{index:04}" for index in range(count)]
    text = comment(preview(*(stack(name, properties=3, resources=3) for name in names)))
    assert len(text) <= LIMIT
    assert all(name in text for name in names)
    assert comment(preview(*map(stack, names)), limit=1) == ", ".join(names)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(max_size=60), min_size=1, max_size=6),
    st.integers(min_value=2_000, max_value=LIMIT),
)
def test_any_text_fits_and_stays_in_its_table(texts: list[str], limit: int) -> None:
    named_by_text = Changes(
        resources=[
            ResourceChange(
                urn=f"urn:{index}",
                type="a:b:C",
                name=text,
                operation=Operation.UPDATE,
                properties=[PropertyChange(path=text, before=text, after="x")],
                because=text,
            )
            for index, text in enumerate(texts)
        ]
    )
    text = comment(preview(StackPreview(stack="one", changes=named_by_text)), limit)
    assert len(text) <= limit
    assert balanced(text)
    found = [line for line in text.splitlines() if line.startswith("| **updated")]
    assert len(found) in {0, len(rows(named_by_text))}
    assert all(row.count("|") == 4 for row in found)


def test_the_same_preview_gives_the_same_bytes() -> None:
    assert comment(preview(stack(), broken())) == comment(preview(stack(), broken()))


def test_the_architecture_of_what_changes_is_drawn_where_there_is_room() -> None:
    drawn = stack().model_copy(update={"diagram": 'flowchart TD\nn0["train"]'})
    text = comment(preview(drawn))
    assert '```mermaid\nflowchart TD\nn0["train"]\n```' in text
    assert balanced(text)
    assert "mermaid" not in comment(preview(drawn), len(text) - 1)


def test_a_fix_is_shown_below_its_reason() -> None:
    (line,) = [line for line in comment(preview(stack())).splitlines() if "error: `public-bucket`" in line]
    assert line.startswith("- 🔴 **gcp-dev**: ")
    assert line.split("<br>")[1:] == [
        "error: `public-bucket` `store`",
        "**Fix:** enforce `publicAccessPrevention`",
    ]


@pytest.mark.parametrize(
    ("remark", "markdown"),
    [("sign in (`oc login`) @all", "sign in (`oc login`) @\u200ball"), ("a `lone one", "a \\`lone one")],
)
def test_code_in_a_remark_is_code(remark: str, markdown: str) -> None:
    assert markdown in comment(preview(StackPreview(stack="dev", remarks=[remark])))
