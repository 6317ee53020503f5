"""The page of what changes do to what is there, which is written from the data of previews."""

from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.review.facts import Effect
from slipway.tools.reference import updates

TEXT = updates.PAGE.read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ")]


def test_the_page_is_up_to_date_and_has_every_fact_with_its_source() -> None:
    assert updates.main(["--check"]) == 0
    for name in ("aws", "gcp"):
        facts = [fact for each in CLOUDS[name].review().in_place().values() for fact in each]
        assert facts
        for fact in facts:
            source = f"{fact.source.date}]({fact.source.url})"
            assert [row for row in ROWS if fact.note in row and source in row]


def test_losses_stand_before_everything_else() -> None:
    clouds = [section.partition("\n## ")[0] for section in TEXT.split(": updates in place\n")[1:]]
    assert len(clouds) == 2
    for cloud in clouds:
        effects = [line.rstrip(":") for line in cloud.splitlines() if line.endswith(":")]
        assert effects[0] == "`deletes-data`"
        assert effects[-1] == updates.EFFECTS[Effect.NOTE]


def test_replaced_properties_are_listed_under_their_resource() -> None:
    (pool,) = [row for row in ROWS if row.startswith("| eks NodeGroup |") and "`subnetIds`" in row]
    assert "`capacityType`" in pool


def test_properties_of_a_block_that_is_a_resource_too_are_listed_once() -> None:
    cluster, pool = (
        [row for row in ROWS if row.startswith(f"| container {kind} |")] for kind in ("Cluster", "NodePool")
    )
    assert "and those of container NodePool in it" in cluster[-1]
    assert "nodePools." not in cluster[-1]
    assert "serviceAccount" in pool[-1]
