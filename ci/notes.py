"""Keeps one note with its preview on every open merge request of GitLab: ``python -m ci.notes``.

A pipeline of a merge request runs that request's own ``.gitlab-ci.yml``, so no job of it can hold a token. This
runs on the default branch and looks up by GitLab's API which pipeline made the preview of each merge request's
head. The preview is text that the code of the change wrote: it is read from the artifact of that pipeline, and
shown on that merge request alone.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any, cast

from ci.comment import NOT_MADE, compose, post
from ci.forge import ForgeError, GitLab, gitlab

JOB = "preview"
"""The job of `.gitlab-ci.yml` that leaves the preview."""

ARTIFACT = "build/ci/preview/preview.md"

ENDED = {"success", "failed"}


def note(forge: GitLab, project: str, number: int) -> str:
    """Brings the note of one merge request up to date; says what was done. Raises ForgeError."""
    pipeline = forge.head_pipeline(number)
    if pipeline is None:
        return "It has no pipeline."
    if str(pipeline["project_id"]) != project:
        return "Its pipeline is a fork's, whose artifacts this token cannot read."
    job = next((job for job in forge.jobs(pipeline["id"]) if job["name"] == JOB), None)
    if job is None or job["status"] not in ENDED:
        return "Its preview has not ended."
    markdown = forge.artifact(job["id"], ARTIFACT)
    text = compose(NOT_MADE if markdown is None else markdown, forge.limit, _address(pipeline))
    return post(forge, number, text)


def _address(pipeline: Mapping[str, Any]) -> str:
    return cast("str", pipeline.get("web_url") or "")


def main() -> int:
    """Exits 1 where a note could not be brought up to date; the others are."""
    failed = False
    try:
        forge = gitlab()
        if forge is None:
            print("There is no token to write notes with: see docs/ci.md.")
            return 0
        numbers = list(forge.open_changes())
    except ForgeError as error:
        print(f"Not posted: {error}", file=sys.stderr)
        return 1
    for number in numbers:
        try:
            print(f"Merge request {number}: {note(forge, os.environ['CI_PROJECT_ID'], number)}")
        except ForgeError as error:
            failed = True
            print(f"Merge request {number}: not posted: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
