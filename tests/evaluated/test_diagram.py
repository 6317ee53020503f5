"""The Mermaid diagram of a stack: its boxes, who waits for whom, and labels that cannot break it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from slipway.evaluated.diagram import ANYWHERE, MOST, NOWHERE, UNKNOWN_CLUSTER, diagram
from slipway.infra.review.stack import UNLIMITED, Stack
from tests.support.costing import Pool, job, service, stack
from tests.support.places import with_places

CPU = Pool("cpu", least=1, most=3, hourly=None)
GPU = Pool("gpu", least=0, most=1, hourly=None, gpus=2)
SPOT = Pool("spot", least=0, most=1, hourly=None, gpus=1)

HOSTILE = '"]; end\n```<br><script>alert("1")</script>&quot;#quot;\x00\x1b\ud800'


@dataclass(frozen=True)
class Drawn:
    """What a diagram has: the box around each box, its other lines of text, and who is waited for by whom."""

    inside: Mapping[str, str]
    lines: Mapping[str, list[str]]
    edges: set[tuple[str, str]]


def drawn(found: Stack) -> Drawn:
    """Reads a diagram, and fails at a line that Mermaid would not take for what it is."""
    first, *lines = diagram(found).splitlines()
    assert first == "flowchart TD"
    around, names = [""], dict[str, str]()
    inside, texts, edges = dict[str, str](), dict[str, list[str]](), set[tuple[str, str]]()
    for line in lines:
        if line == "end":
            around.pop()
        elif edge := re.fullmatch(r"(n\d+) --> (n\d+)", line):
            edges.add((names[edge[1]], names[edge[2]]))
        else:
            box = re.fullmatch(
                r'(subgraph )?(\w+)(?:\[|\(\[|\{\{)"((?:[\w \-.,:/()=+≤…]|#\d+;|<br>)*)"(?:\]|\]\)|\}\})', line
            )
            assert box is not None, line
            title, *more = (
                re.sub(r"#(\d+);", lambda code: chr(int(code[1])), part) for part in box[3].split("<br>")
            )
            names[box[2]] = title
            inside[title], texts[title] = around[-1], more
            if box[1]:
                around.append(title)
    assert around == [""]
    return Drawn(inside, texts, edges)


def test_jobs_stand_in_the_pool_that_takes_them_and_wait_for_others() -> None:
    prepare = job("prepare", "cpu")
    queue = service("queue", "cpu")
    train = job("train", "gpu", prepare, queue, gpus=1, pods=4)
    found = drawn(stack([CPU, GPU], job("chart", "cpu", prepare, train), prepare, train, queue))
    assert found.inside == {
        "here": "",
        "cpu": "here",
        "gpu": "here",
        "prepare": "cpu",
        "queue": "cpu",
        "train": "gpu",
        "chart": "cpu",
    }
    # That `chart` waits for `prepare` is clear without an arrow of its own.
    assert found.edges == {("prepare", "train"), ("queue", "train"), ("train", "chart")}
    assert found.lines["train"] == ["4 pods, 1 GPU, 3 CPU, ≤ 60 min"]


def test_a_pool_says_what_its_nodes_are() -> None:
    unknown = Pool("new", least=2, most=2, hourly=None, cpu=UNLIMITED)
    found = drawn(stack([CPU, GPU, unknown]))
    assert found.lines["cpu"] == ["4 CPU, 15.6 GiB", "1 to 3 nodes"]
    assert found.lines["gpu"] == ["4 CPU, 15.6 GiB", "0 to 1 node", "2 GPUs"]
    assert found.lines["new"] == ["machine type not known", "2 nodes"]


def test_jobs_without_a_known_pool_are_drawn() -> None:
    pinned = job("pinned", "cpu")
    pinned.properties["spec"]["template"]["spec"]["nodeName"] = "node-1"
    found = drawn(stack([CPU], job("lost", "tpu"), pinned))
    assert found.inside["lost"] == NOWHERE
    assert found.inside["pinned"] == ANYWHERE
    found = drawn(stack([CPU], replace(job("stray", "cpu"), provider="")))
    assert found.inside[found.inside["stray"]] == UNKNOWN_CLUSTER


def test_a_step_with_places_is_drawn_once_at_its_first_place() -> None:
    prepare = job("prepare", "cpu")
    places = [job(f"train-at-{pool.name}", pool.name, prepare, gpus=1) for pool in (SPOT, GPU)]
    jobs = with_places(job("train", "cpu"), places, job("probe", "spot", gpus=1))
    found = drawn(stack([CPU, GPU, SPOT], prepare, *jobs, job("predict", "cpu", jobs[-1])))
    assert found.edges == {("prepare", "train"), ("train", "predict")}
    assert found.inside["train"] == "spot"
    assert "or 1 other pool" in found.lines["train"][0]
    assert not {name for name in found.inside if name.startswith(("train-", "probe"))}


def test_a_cluster_says_where_it_is() -> None:
    here = {"slipway:clusters": {"here": {"cloud": "gcp", "location": "us-central1"}}}
    assert "here: Google Cloud, us-central1" in drawn(replace(stack([CPU]), configuration=here)).inside
    other = {"slipway:clusters": {"here": {"stack": "acme/slipway/platform", "cluster": "dev"}}}
    assert "here: dev of stack acme/slipway/platform" in drawn(replace(stack([CPU]), configuration=other)).inside


def test_labels_cannot_break_the_diagram() -> None:
    clusters = {"here": {"cloud": "gcp", "location": HOSTILE}, HOSTILE: {}, "end": {}}
    hostile = stack([CPU], job(HOSTILE, "cpu"), job("end", "cpu"), job("long" * 100, "cpu"))
    text = diagram(replace(hostile, configuration={"slipway:clusters": clusters}))
    found = drawn(replace(hostile, configuration={"slipway:clusters": clusters}))
    assert not re.search(r"script>|`|&|quot;|\x1b", text)
    assert [name for name, pool in found.inside.items() if pool == "cpu" and "<script>" in name]
    assert max(len(name) for name, pool in found.inside.items() if pool == "cpu") == 60


def test_it_does_not_depend_on_the_order_of_resources() -> None:
    prepare = job("prepare", "cpu")
    found = stack([CPU, GPU], prepare, *(job(f"other-{number}", "cpu", prepare) for number in range(4)))
    turned = replace(found, resources={urn: found.resources[urn] for urn in reversed(list(found.resources))})
    assert diagram(found) == diagram(turned)


def test_nothing_is_drawn_of_nothing_and_of_too_much() -> None:
    assert diagram(Stack("empty", {})) == ""
    assert diagram(stack([CPU], *(job(f"job-{number}", "cpu") for number in range(MOST)))) != ""
    assert diagram(stack([CPU], *(job(f"job-{number}", "cpu") for number in range(MOST + 1)))) == ""
