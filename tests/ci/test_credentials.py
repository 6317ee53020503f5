"""A job on GitLab signs in to Google Cloud with its own token, which nobody else may read."""

import json
import stat
from pathlib import Path

from tests.ci.conftest import Make

PROVIDER = "projects/1/locations/global/workloadIdentityPools/gitlab/providers/gitlab"


def test_a_job_signs_in_with_its_own_token(make: Make, checkout: Path) -> None:
    done = make(
        "ci-credentials",
        SLIPWAY_ID_TOKEN="jwt",
        GCP_WORKLOAD_IDENTITY_PROVIDER=PROVIDER,
        GCP_SERVICE_ACCOUNT="deploy@my-project.iam.gserviceaccount.com",
    )
    assert done.returncode == 0, done.stderr
    folder = checkout / "build" / "ci" / "credentials"
    content = json.loads((folder / "google.json").read_text(encoding="utf-8"))
    assert content["type"] == "external_account"
    assert content["audience"] == f"//iam.googleapis.com/{PROVIDER}"
    token = Path(content["credential_source"]["file"])
    assert token.read_text(encoding="utf-8") == "jwt"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert "jwt" not in done.stdout + done.stderr


def test_a_job_without_a_token_says_so(make: Make) -> None:
    done = make("ci-credentials")
    assert done.returncode != 0
    assert "SLIPWAY_ID_TOKEN" in done.stderr
