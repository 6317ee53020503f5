"""The page of what changes do to what is there, which is written from the data of previews."""

from slipway.infra.clouds.registry import CLOUDS
from slipway.tools.reference import updates

ROWS = [line for line in updates.PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]


def test_the_page_is_up_to_date_and_has_every_fact_with_its_source() -> None:
    assert updates.main(["--check"]) == 0
    for name in ("aws", "gcp"):
        facts = [fact for each in CLOUDS[name].review().in_place().values() for fact in each]
        assert facts
        for fact in facts:
            source = f"{fact.source.date}]({fact.source.url})"
            assert [row for row in ROWS if fact.note in row and source in row]


def test_losses_stand_before_everything_else() -> None:
    said = [row.split("|")[4].strip() for row in ROWS if row.count("|") > 6]
    clouds = "\n".join(said).split("preview says")[1:]
    assert len(clouds) == 2
    for cloud in clouds:
        words = [word for word in cloud.split("\n") if word and word != "---"]
        assert words[0] == "`deletes-data`"
        assert words[-1] == "a note"


def test_replaced_properties_are_listed_under_their_resource() -> None:
    (pool,) = [row for row in ROWS if row.startswith("| eks NodeGroup |") and "`subnetIds`" in row]
    assert "`capacityType`" in pool
