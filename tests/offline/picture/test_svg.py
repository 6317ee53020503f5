"""The architecture picture: what it shows, and that it can be read."""

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.infra.review.facts import Identity
from slipway.infra.review.stack import UNLIMITED, Resource, Stack
from slipway.offline.picture.scene import NOWHERE, Column, Scene, Work, Zone, scene
from slipway.offline.picture.svg import STYLES, TIMES, fit, layout, picture, wrap
from tests.support.checkout import ROOT
from tests.support.costing import CLUSTER, PROVIDER, Pool, job, service, stack
from tests.support.reviewing import declared
from tests.support.svg import NAMESPACE, Drawing, Point, parse, turns

CPU = Pool("cpu", least=1, most=3, hourly=None)
GPU = Pool("gpu", least=0, most=1, hourly=None, gpus=2)

HOSTILE = '</text><script>alert("1")</script>&amp;\x00\x1b\ud800' + "W" * 300


def drawn(*resources: Resource, **more: Any) -> Drawing:
    return parse(picture(replace(stack([CPU, GPU], *resources), **more)))


def names(drawing: Drawing, kind: str) -> list[str]:
    return [each.name for each in drawing.of(kind)]


def holder(drawing: Drawing, kind: str, name: str) -> str:
    """The one box of that kind in which the Job is."""
    (inner,) = (each for each in drawing.of("job") if each.name == name)
    (found,) = (each for each in drawing.of(kind) if each.holds(inner))
    return found.name


def check(drawing: Drawing) -> None:
    """What is true of every picture."""
    for kinds in (("job", "identity", "store", "others"), ("pool",), ("cluster", "identity", "store", "others")):
        boxes = [each for kind in kinds for each in drawing.of(kind)]
        assert [
            (one.name, other.name) for one, other in itertools.combinations(boxes, 2) if one.meets(other)
        ] == []
    for inner, outer in (("job", "pool"), ("pool", "cluster")):
        for each in drawing.of(inner):
            assert sum(box.holds(each) for box in drawing.of(outer)) == 1, each.name
    for each in drawing.boxes:
        assert each.x >= 0 <= each.y
        assert each.x + each.width <= drawing.width
        assert each.y + each.height <= drawing.height
        assert [text for text, left, right in each.texts if left < each.x or right > each.x + each.width] == []
    for line in (*drawing.lines, *drawing.connections):
        for start, end in itertools.pairwise(line):
            assert start[0] == pytest.approx(end[0], abs=0.01) or start[1] == pytest.approx(end[1], abs=0.01)
            crossed = [each.name for each in drawing.of("job") if each.crossed_by(start, end)]
            assert crossed == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "images" / "stacks").glob("*.svg")), ids=lambda path: path.stem
)
def test_the_pictures_in_the_pages_can_be_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    drawing = parse(text)
    check(drawing)
    assert drawing.width <= 1200
    assert text.count("http") == text.count('xmlns="http://www.w3.org/2000/svg"')
    for forbidden in (
        "<script",
        "href",
        "url(http",
        "@import",
        "@font-face",
        "<image",
        "foreignObject",
        "on" + "load",
    ):
        assert forbidden not in text
    assert drawing.root.attrib["role"] == "img"
    labels = drawing.root.attrib["aria-labelledby"].split()
    described = {each.attrib["id"]: each.text for each in drawing.root.iter() if "id" in each.attrib}
    assert all(described[label] for label in labels)
    assert "prefers-color-scheme:dark" in text


def test_jobs_stand_in_the_pool_that_takes_them_below_what_they_wait_for() -> None:
    prepare = job("prepare", "cpu")
    train = job("train", "gpu", prepare, gpus=1)
    chart = job("chart", "cpu", prepare, train)
    drawing = drawn(chart, prepare, train)
    check(drawing)
    assert [holder(drawing, "pool", name) for name in ("prepare", "train", "chart")] == ["cpu", "gpu", "cpu"]
    rows = {each.name: each.y for each in drawing.of("job")}
    assert rows["prepare"] < rows["train"] < rows["chart"]
    # That `chart` waits for `prepare` is clear without an arrow of its own.
    assert drawing.between() == {("prepare", "train"), ("train", "chart")}


def test_boxes_show_the_resources_of_pools_and_jobs() -> None:
    unknown = Pool("new", least=2, most=2, hourly=None, cpu=UNLIMITED)
    drawing = parse(picture(stack([CPU, GPU, unknown], job("train", "gpu", gpus=2, cpu="1500m", limit=7200))))
    shown = {box.name: [text for text, _, _ in box.texts] for box in drawing.boxes}
    assert shown["cpu"] == ["cpu", "4 CPU, 15.6 GiB", "1 to 3 nodes"]
    assert shown["gpu"] == ["gpu", "4 CPU, 15.6 GiB", "0 to 1 node", "2 GPUs"]
    assert shown["new"] == ["new", "machine type not known", "2 nodes"]
    assert shown["train"] == ["train", "2 GPUs, 1.5 CPU, ≤ 2 h"]


def test_a_job_that_no_pool_takes_is_drawn() -> None:
    drawing = drawn(job("lost", "tpu"), job("train", "gpu", gpus=1))
    check(drawing)
    assert holder(drawing, "nowhere", "lost") == NOWHERE
    assert holder(drawing, "gpu", "train") == "gpu"


def test_a_job_with_unknown_placement_is_not_drawn_as_unschedulable() -> None:
    any_job = job("pinned", "cpu")
    any_job.properties["spec"]["template"]["spec"]["nodeName"] = "node-1"
    drawing = drawn(any_job)
    check(drawing)
    assert drawing.of("nowhere") == []
    assert names(drawing, "job") == ["pinned"]


def test_a_job_of_an_unknown_cluster_is_shown() -> None:
    drawing = drawn(replace(job("stray", "cpu"), provider=""))
    check(drawing)
    assert holder(drawing, "cluster", "stray") == "cluster not known"


def test_the_place_of_a_cluster_and_of_the_store() -> None:
    configuration = {
        "slipway:clusters": {"here": {"cloud": "existing", "kubeconfig": "~/.kube/config"}},
        "slipway:store": {
            "kind": "nfs",
            "size": "1Gi",
            "server": "filer",
            "options": ["hard"],
            "versioning": True,
        },
    }
    drawing = drawn(configuration=configuration)
    check(drawing)
    (cluster,) = drawing.of("cluster")
    assert [text for text, _, _ in cluster.texts[1:]] == ["Existing cluster", "current context of ~/.kube/config"]
    (store,) = drawing.of("store")
    assert [text for text, _, _ in store.texts] == ["Store: nfs", "server filer, size 1Gi, versioning"]
    # Without an identity between them, the cluster's own line leads to the store.
    assert any(line[0][1] == cluster.y + cluster.height and line[-1][1] == store.y for line in drawing.lines)


def test_a_cluster_of_another_stack_names_it() -> None:
    settings = {"slipway:clusters": {"here": {"stack": "acme/slipway/platform", "cluster": "dev"}}}
    (zone,) = scene(replace(stack([CPU]), configuration=settings)).zones
    assert zone.lines == ["dev of stack acme/slipway/platform"]


def test_clusters_reach_the_store_through_their_identities() -> None:
    identities = [
        Identity("runner", "pods", "use the bucket", ["here"], store=True),
        Identity("nodes", "nodes", "pull images", ["here"]),
    ]

    plain = stack([CPU])
    configuration = {"slipway:store": {"kind": "gcs"}}
    drawing = parse(picture(replace(plain, identities=identities, configuration=configuration)))
    check(drawing)
    (cluster,), (identity,), (store,) = (drawing.of(kind) for kind in ("cluster", "identity", "store"))
    assert identity.name == "runner"
    ends = {(line[0][1], line[-1][1]) for line in drawing.lines}
    assert ends == {(cluster.y + cluster.height, identity.y), (identity.y + identity.height, store.y)}
    (others,) = drawing.of("others")
    assert others.about == "nodes (nodes) may pull images"


def test_hostile_names_stay_text() -> None:
    evil = job(HOSTILE, "cpu")
    configuration: Mapping[str, Any] = {
        "slipway:clusters": {"here": {"cloud": HOSTILE, "location": HOSTILE}, HOSTILE: {}},
        "slipway:store": {"kind": HOSTILE, HOSTILE: HOSTILE},
    }
    drawing = drawn(evil, configuration=configuration, name=HOSTILE)
    check(drawing)
    assert list(drawing.root.iter("{http://www.w3.org/2000/svg}script")) == []
    (job_box,) = drawing.of("job")
    assert '<script>alert("1")</script>&amp;' in job_box.about
    assert job_box.texts[-1][0].endswith("…")


def test_an_empty_stack_has_a_picture() -> None:
    check(parse(picture(Stack("empty", {}))))
    check(parse(picture(Stack("bare", {}, {"slipway:clusters": {"a": {}, "b": {}}}))))


def queued() -> list[Resource]:
    """A service, its Service, a schedule, and Jobs that connect to it, one of them of four pods."""
    to_queue = {"args": ["--queue", "queue:6379"]}
    server = changed(service("queue", "cpu"), ports=[{"containerPort": 6379}])
    entrance = {"metadata": {"name": "queue"}, "spec": {"selector": {"app": "queue"}, "ports": [{"port": 6379}]}}
    days = changed(job("days", "gpu", server, pods=4), **to_queue)
    report = changed(job("report", "cpu", days, server), env=[{"name": "QUEUE_ADDRESS", "value": "queue:6379"}])
    cron = {"schedule": "0 3 * * *", "timeZone": "Europe/Berlin", "jobTemplate": {"spec": {"template": TEMPLATE}}}
    return [
        server,
        declared("kubernetes:core/v1:Service", "queue", entrance, provider=PROVIDER.urn),
        days,
        report,
        declared("kubernetes:batch/v1:CronJob", "nightly", {"spec": cron}, provider=PROVIDER.urn),
    ]


TEMPLATE = {"spec": {"nodeSelector": {"pool": "cpu"}, "containers": [{"name": "main"}]}}


def changed(it: Resource, **container: Any) -> Resource:
    properties: dict[str, Any] = copy.deepcopy(dict(it.properties))
    template = properties["spec"]["template"]
    template["metadata"] = {"labels": {"app": it.name}}
    template["spec"]["containers"][0].update(container)
    return replace(it, properties=properties)


def test_services_stand_beside_the_steps_that_connect_to_them() -> None:
    drawing = drawn(*queued())
    check(drawing)
    assert names(drawing, "service") == ["queue"]
    assert holder(drawing, "pool", "queue") == "cpu"
    assert drawing.between(connections=True) == {("days", "queue"), ("report", "queue")}
    assert drawing.between() == {("days", "report")}
    [queue] = drawing.of("service")
    assert "port 6379, 1 CPU" in {text for text, _, _ in queue.texts}
    whole = "".join(drawing.root.itertext())
    assert "3 Jobs" not in whole
    assert "2 Jobs, 1 service, 1 schedule" in whole
    assert "days connects to queue." in whole


def test_the_pods_of_a_step_are_a_stack_with_their_number() -> None:
    drawing = drawn(*queued())
    [days] = [each for each in drawing.of("job") if each.name == "days"]
    assert days.about.startswith("Job days, 4 pods at once")
    assert f"{TIMES}4" in {text for text, _, _ in days.texts}
    behind = [each for each in drawing.root.iter(f"{NAMESPACE}path") if each.attrib["class"] == "job"]
    assert len(behind) == 2


def test_a_schedule_says_when() -> None:
    [nightly] = drawn(*queued()).of("schedule")
    assert [text for text, _, _ in nightly.texts] == ["nightly", "0 3 * * *, Europe/Berlin"]


def test_a_stack_without_services_has_no_word_of_them() -> None:
    text = picture(stack([CPU, GPU], job("one", "cpu"), job("two", "cpu", pods=2)))
    assert not [word for word in ("service", "schedule", "connects", "Violet") if word in text]


def test_the_picture_does_not_depend_on_the_order_of_resources() -> None:
    prepare = job("prepare", "cpu")
    train = job("train", "gpu", prepare, gpus=1)
    others = [job(f"other-{number}", "cpu", prepare) for number in range(4)]
    found = stack([CPU, GPU], prepare, train, *others)
    turned = replace(found, resources={urn: found.resources[urn] for urn in reversed(list(found.resources))})
    assert picture(found) == picture(turned)
    assert CLUSTER.urn in found.resources
    assert PROVIDER.urn in found.resources


@pytest.mark.slow
@given(
    columns=st.lists(st.integers(0, 4), max_size=12),
    needs=st.lists(st.sets(st.integers(0, 11)), min_size=12, max_size=12),
)
def test_lines_avoid_boxes_and_each_other(columns: list[int], needs: list[set[int]]) -> None:
    jobs = [[str(index) for index, column in enumerate(columns) if column == number] for number in range(5)]
    made = [
        Column(f"pool {number}", [], "cpu", [Work(key, key, []) for key in keys], about="pool")
        for number, keys in enumerate(jobs)
    ]
    edges = [
        (str(before), str(index))
        for index in range(len(columns))
        for before in sorted(needs[index])
        if before < index
    ]
    found = layout(Scene("any", [Zone("one", [], made[:3]), Zone("two", [], made[3:])], edges, [], []))
    boxes = {box.name: box for box in found.boxes}
    assert len({(box.x, box.y) for box in boxes.values()}) == len(columns)
    for start, end in edges:
        assert boxes[start].y + boxes[start].height < boxes[end].y
    lines = [turns(each) for each in found.lines]
    assert len(lines) == len(edges)
    for (edge, line), (other_edge, other) in itertools.combinations(zip(edges, lines, strict=True), 2):
        for one, two in itertools.product(itertools.pairwise(line), itertools.pairwise(other)):
            if edge[0] != other_edge[0] and edge[1] != other_edge[1]:
                assert not along(one, two), (edge, other_edge)
    for line in lines:
        for (x, y), (to_x, to_y) in itertools.pairwise(line):
            for box in found.boxes:
                inside_x = min(x, to_x) < box.x + box.width - 0.1 and max(x, to_x) > box.x + 0.1
                assert not (inside_x and min(y, to_y) < box.y + box.height - 0.1 and max(y, to_y) > box.y + 0.1)


def along(one: Sequence[Point], other: Sequence[Point]) -> bool:
    """Whether two lines have more than a point in common."""
    for across, down in ((0, 1), (1, 0)):
        if all(abs(point[across] - one[0][across]) < 0.5 for point in (*one, *other)):
            (first, last), (begin, end) = (sorted(point[down] for point in line) for line in (one, other))
            return min(last, end) - max(first, begin) > 0.5
    return False


@given(st.text(max_size=60), st.integers(30, 300), st.sampled_from(STYLES))
def test_text_fits(text: str, room: int, style: Any) -> None:
    for line in (fit(text, room, style), *wrap(text, room, style)):
        assert style.width(line) <= room
