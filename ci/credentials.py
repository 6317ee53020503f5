"""Short-lived credentials from the token that GitLab issues to a job: ``python -m ci.credentials``.

Writes what the clouds' own libraries look for into build/ci/credentials, and no credential but the job's token,
which ends with the job. On GitHub, actions do the same.
"""

import json
import os
import sys
from pathlib import Path

FOLDER = Path("build/ci/credentials")


def google(provider: str, account: str, token: Path) -> dict[str, object]:
    """What GOOGLE_APPLICATION_CREDENTIALS names, with the token as its source (https://google.aip.dev/auth/4117).

    ``provider`` is the full name of a workload identity provider: ``projects/…/providers/…``.
    """
    return {
        "type": "external_account",
        "audience": f"//iam.googleapis.com/{provider}",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token",
        "service_account_impersonation_url": (
            f"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/{account}:generateAccessToken"
        ),
        "credential_source": {"file": str(token.resolve())},
    }


def write(file: Path, text: str) -> None:
    """Only this user may read it."""
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")


def main() -> int:
    """Exits 1 where the job has no token."""
    token = os.environ.get("SLIPWAY_ID_TOKEN", "")
    if not token:
        print("There is no SLIPWAY_ID_TOKEN: the job has to ask for it under `id_tokens`.", file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    write(FOLDER / "token", token)
    if provider := os.environ.get("GCP_WORKLOAD_IDENTITY_PROVIDER"):
        content = google(provider, os.environ["GCP_SERVICE_ACCOUNT"], FOLDER / "token")
        write(FOLDER / "google.json", json.dumps(content, indent=2) + "\n")
    print(f"Wrote {FOLDER}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
