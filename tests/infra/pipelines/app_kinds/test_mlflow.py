"""Apps of the kind `mlflow`: whose results they record, what they keep, and whom they answer."""

import fnmatch
import json
from pathlib import Path
from typing import Any

from slipway.infra.pipelines.app_kinds import mlflow
from slipway.infra.pipelines.discovery import apps_of
from slipway.infra.pipelines.images import lock_problem
from slipway.infra.schema.secret_values import MASK
from slipway.infra.settings.loading import load
from slipway.workloads.apps.mlflow import serve
from tests.infra.pipelines.file_problems import problems
from tests.infra.pipelines.shop import SHOP, stack, written
from tests.support.checkout import ROOT
from tests.support.previewing import findings
from tests.support.stack_values import changed

NUMBER = {"steps.train.results": {"loss": "metrics.json#/loss", "curve": "curve.png"}}


def declared(tmp_path: Path, app: dict[str, Any], changes: dict[str, Any]) -> Any:
    folder = written(tmp_path / "shop", changed(SHOP, {**changes, "apps": {"runs": {"kind": "mlflow", **app}}}))
    settings = load(stack(folder, {"apps": {"runs": {"pool": "cpu"}}})).pipelines["shop"]
    (runs,) = apps_of(str(folder), settings)
    return runs


def test_it_records_the_steps_that_declare_what_can_be_measured(tmp_path: Path) -> None:
    runs = declared(tmp_path, {}, NUMBER)
    steps = json.loads(runs.environment[mlflow.RESULTS].format())
    assert {name: [result["name"] for result in results] for name, results in steps.items()} == {"train": ["loss"]}
    assert (runs.uses_store, runs.writes, runs.keeps_data) == (True, False, True)
    # People watch it while steps run.
    assert (runs.after, dict(runs.inputs), runs.connects) == ((), {}, ())


def test_it_records_the_steps_whose_programs_log_into_their_results(tmp_path: Path) -> None:
    client = {"MLFLOW_TRACKING_URI": "{output}/mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"}
    runs = declared(tmp_path, {}, {"steps.train.environment": client})
    assert json.loads(runs.environment[mlflow.RESULTS].format()) == {"train": []}


DATABASE = {"address": "db.example.com:5433/runs", "password": "runs-password"}
OPEN = {"egress": {"allow": {"databases": {"cidr": "10.0.0.0/8", "ports": [5433]}}}}


def with_database(tmp_path: Path, database: dict[str, Any], **changes: Any) -> tuple[Path, dict[str, Any]]:
    folder = written(tmp_path / "shop", changed(SHOP, {"apps": {"runs": {"kind": "mlflow", "step": "train"}}}))
    values = stack(folder, {"apps": {"runs": {"pool": "cpu", "database": database}}})
    return folder, changed({**values, **OPEN}, {"secrets.runs-password": MASK, **changes})


def test_a_postgres_takes_the_place_of_the_volume_and_its_password_stands_nowhere(tmp_path: Path) -> None:
    folder, values = with_database(tmp_path, {**DATABASE, "migrate_to": "3.17.2"})
    (runs,) = apps_of(str(folder), load(values).pipelines["shop"])
    assert not runs.keeps_data
    assert "{data}" not in "".join(runs.arguments)
    assert runs.arguments[runs.arguments.index("--migrate-to") + 1] == "3.17.2"
    where = {"PGHOST": "db.example.com", "PGPORT": "5433", "PGDATABASE": "runs", "PGSSLMODE": "require"}
    assert where.items() <= runs.environment.items()
    assert runs.secrets == {"PGPASSWORD": "runs-password"}


def test_what_is_wrong_with_a_database_is_said_at_once(tmp_path: Path) -> None:
    address = "postgresql://me:word@db.example.com/runs"
    wrong = {"address": address, "user": "a b", "password": "runs-password", "migrate_to": "latest"}
    folder, values = with_database(tmp_path, wrong)
    keys = {f"stack.apps.runs.database.{key}" for key in ("address", "user", "migrate_to")}
    assert problems(folder, values).keys() == keys
    folder, values = with_database(tmp_path, DATABASE, egress={}, secrets={})
    assert "5433" in problems(folder, values)["stack.apps.runs.database"]
    assert "slipway:secrets.runs-password" in problems(folder, values)
    folder, values = with_database(tmp_path, DATABASE, **{"pipelines.shop.apps.runs.storage": "1Gi"})
    assert "storage" in problems(folder, values)["stack.apps.runs"]


def test_a_preview_says_that_the_volume_goes_with_what_people_wrote() -> None:
    changes = {"pipelines.mnist.apps.mlflow": {"pool": "cpu", "database": DATABASE}, **OPEN}
    lost = [
        finding
        for finding in findings("demo", {**changes, "secrets": {"runs-password": MASK}})
        if finding.policy == "deletes-data"
    ]
    assert ["mnist-mlflow-data" in finding.name for finding in lost] == [True]
    assert all(finding.harm for finding in lost)


def test_of_a_sweep_it_records_every_variant_of_the_step_that_is_named(tmp_path: Path) -> None:
    several = {
        "steps.train.matrix": {"colour": ["red", "blue"]},
        "steps.train.run": ["python", "train.py", "{prepare}", "--output", "{output}", "{colour}"],
    }
    runs = declared(tmp_path, {"step": "train"}, several)
    assert json.loads(runs.environment[mlflow.RESULTS].format()).keys() == {"train-red", "train-blue"}


def test_a_step_that_is_not_there_is_refused(tmp_path: Path) -> None:
    content = changed(SHOP, {"apps": {"runs": {"kind": "mlflow", "step": "trian"}}})
    texts = problems(written(tmp_path / "shop", content), stack(tmp_path / "shop"))
    assert "`train`" in str(texts["apps.runs.step"])


def test_it_answers_by_names_of_the_cluster_and_of_its_ingress_alone() -> None:
    patterns = serve.allowed_hosts(frozenset({"runs.example.com"}))

    def answers(host: str) -> bool:
        # As mlflow/server/security_utils.py has it.
        return any(fnmatch.fnmatch(host, name) if "*" in name else host == name for name in patterns)

    for host in ("localhost:5000", "127.0.0.1:41234", "[::1]:5000", "a-b.ns.svc:5000"):
        assert answers(host), host
    assert answers("runs.example.com")
    for host in (
        "evil.example.com",
        "10.evil.org",
        "runs.example.com.evil.org",
        "localhost.evil.org",
        "evil.org:5000",
    ):
        assert not answers(host), host


def test_its_lock_file_pins_all_that_it_needs() -> None:
    lock = Path(ROOT, mlflow.REQUIREMENTS)
    assert lock_problem(lock) is None
    assert "\nmlflow==3." in lock.read_text(encoding="utf-8")
