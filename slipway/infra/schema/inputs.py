"""Data that is there as an input of a pipeline: how a stack file names it."""

import re
from typing import Annotated, Literal, cast

from pydantic import AfterValidator

from slipway.infra.platform import Data
from slipway.infra.schema.base import refuse
from slipway.infra.schema.paths import bucket_folder_problem

STORE = "{store}"
"""What the URL of a folder of the stack's own store begins with."""

_URL = re.compile(r"(?P<scheme>gs|s3)://(?P<bucket>[^/]*)(?:/+(?P<folder>.*?))?/*", re.DOTALL)

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
"""Cloud Storage takes at most 63 characters, and 222 where there are dots among them; S3 has no underscores
(docs.cloud.google.com/storage/docs/buckets#naming and docs.aws.amazon.com/AmazonS3/latest/userguide/
bucketnamingrules.html, November 2026)."""

_EXAMPLE = 'write a bucket with its folder, `gs://team-data/images`, or one of the store, `"{store}/images"`'


def data_at(name: str, url: str, digest: str = "", *, grants: bool = True) -> Data:
    """The input ``name`` at ``url``: `gs://bucket/folder`, `s3://bucket/folder` or `{store}/folder`.

    Raises ValueError where ``url`` is none; `url_problem` says why.
    """
    if why := url_problem(url):
        raise ValueError(f"{url}: {why[0]}")
    match = _URL.fullmatch(url)
    if match is None:
        folder = url.removeprefix(STORE).strip("/")
        return Data(name, "store", "", folder, digest, grants=False)
    scheme = cast("Literal['gs', 's3']", match["scheme"])
    return Data(name, scheme, match["bucket"], match["folder"] or "", digest, grants)


def url_problem(url: str) -> tuple[str, str] | None:
    """Reason and fix where ``url`` names neither the folder of a bucket nor one of the store."""
    match = _URL.fullmatch(url)
    if url.startswith(STORE):
        folder = url.removeprefix(STORE)
        if not folder.strip("/"):
            return "all of the store, to which every step writes", 'write a folder of it: `"{store}/images"`'
        if not folder.startswith("/"):
            return "not a folder below the store", _EXAMPLE
    elif match is None:
        return "neither a bucket of Cloud Storage or S3, nor a folder of the store", _EXAMPLE
    elif not _BUCKET.fullmatch(match["bucket"]):
        return f"no bucket can be called `{match['bucket']}`", _EXAMPLE
    else:
        folder = match["folder"] or ""
    if folder.strip("/") and (why := bucket_folder_problem(folder.strip("/"))):
        return f"not a folder: {why}", "write the names of folders, with `/` between them"
    return None


def _url(value: str) -> str:
    if why := url_problem(value):
        raise refuse(*why)
    return value


Url = Annotated[str, AfterValidator(_url)]
"""Where an input is: a bucket with or without a folder, or a folder of the store."""
