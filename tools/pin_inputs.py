"""`slipway pin-inputs`: writes into a stack file what the data is that its pipelines read as inputs.

A digest is of names, sizes and versions of files, as a bucket or a volume lists them: no file is read.
"""

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.filesize import decimal

from slipway.infra import pulumi_cli
from slipway.infra.commands import command, page
from slipway.infra.exits import Exit, report_error
from slipway.infra.pipelines.inputs import INPUTS, data_of
from slipway.infra.places import PROJECT
from slipway.infra.platform import Data
from slipway.infra.schema.inputs import digest_of
from slipway.infra.schema.names import short_digest
from slipway.infra.schema.problems import PREFIX, did_you_mean, without_prefix
from slipway.infra.settings.loading import pipelines_in
from slipway.infra.settings.pipelines import KEY
from slipway.infra.terminal import new_console
from slipway.offline.engine.stack_config import ConfigError, StackConfig, load_stack
from slipway.offline.evaluated.phrasing import many
from slipway.tools import stack_file
from slipway.tools.history.comparison import HistoryError
from slipway.tools.show import ShowError
from slipway.tools.transfer.buckets import Bucket, bucket_of, url_of
from slipway.tools.transfer.files import File, TransferError
from slipway.tools.transfer.pods import MountedStore, mounted

FAILURES = (TransferError, HistoryError, ShowError, pulumi_cli.CliError)
"""What keeps data from being listed."""


@dataclass(frozen=True)
class PipelineInput:
    """An input of a pipeline, as the stack file has it."""

    pipeline: str
    data: Data

    @property
    def name(self) -> str:
        """What it is called in a stack."""
        return f"{self.pipeline}.{self.data.name}"

    @property
    def keys(self) -> stack_file.Keys:
        """Where it stands in the stack file."""
        return ("config", f"{PREFIX}{KEY}", self.pipeline, INPUTS, self.data.name)


def inputs_of(values: Mapping[str, Any]) -> list[PipelineInput]:
    """The inputs of the pipelines that a stack with this configuration runs, right or wrong."""
    sections = pipelines_in(without_prefix(values))
    return [PipelineInput(name, data) for name, section in sections.items() for data in data_of(section).values()]


@dataclass
class Listings:
    """The files of the inputs of ``stack``, each place listed once.

    Without ``pods`` a store that only pods see is not looked into.
    """

    stack: str
    configuration: Mapping[str, Any]
    pods: contextlib.ExitStack | None = None
    _store: Bucket | MountedStore | None = None
    _known: dict[str, Mapping[str, File]] = field(default_factory=dict[str, Mapping[str, File]])

    def files(self, data: Data) -> Mapping[str, File]:
        """The files by their path from the input's folder. Raises what is in `FAILURES`."""
        if data.url not in self._known:
            self._known[data.url] = self._place(data).files(data.folder)
        files = self._known[data.url]
        if not files:
            raise TransferError(f"there is no file below {data.url}")
        if "" in files:
            raise TransferError(f"{data.url} is a file, and an input is a folder")
        return files

    def _place(self, data: Data) -> Bucket | MountedStore:
        if data.in_store:
            self._store = self._store or self._find_store()
            return self._store
        bucket = bucket_of(f"{data.scheme}://{data.bucket}", self.configuration)
        if bucket is None:
            raise TransferError(f"no cloud of the stack {self.stack} lists {data.url}")
        return bucket

    def _find_store(self) -> Bucket | MountedStore:
        url = url_of(self.stack, pulumi_cli.outputs_of(self.stack))
        if bucket := bucket_of(url, self.configuration):
            return bucket
        if self.pods is None:
            raise TransferError("only a pod sees into the store")
        return self.pods.enter_context(mounted(self.stack))


def digest(files: Mapping[str, File]) -> str:
    """The digest of a listing. A file of a volume has the time of its last change as its version."""
    return digest_of({name: (file.size, file.version or str(file.time)) for name, file in files.items()})


@contextlib.contextmanager
def listings(stack: str, configuration: Mapping[str, Any]) -> Generator[Listings]:
    """What lists the inputs of a stack, through a pod where that has to be, which goes again."""
    with contextlib.ExitStack() as pods:
        yield Listings(stack, configuration, pods)


def main(stack: str, pipeline: str, *, check: bool) -> Exit:
    """Pins the inputs of the stack, of one pipeline where that is named; with ``check`` only says which differ."""
    console = new_console()
    try:
        config = load_stack(stack, PROJECT)
        changed = _changed(console, config, stack, _chosen(config, stack, pipeline))
        if changed and not check:
            # Listing takes minutes, in which the file may have been edited.
            if inputs_of(load_stack(stack, PROJECT).values) != inputs_of(config.values):
                raise ConfigError(f"{config.file.name} was changed meanwhile, and stays as it is: run it again")
            stack_file.change(config.file, {keys: {"digest": value} for keys, value in changed.items()})
    except (ConfigError, TransferError) as error:
        report_error(error)
        return Exit.FAILED
    if changed and check:
        pin = command("pin-inputs", stack=stack, **({"pipeline": pipeline} if pipeline else {}))
        console.print(f"{many(len(changed), 'input')} not as pinned: {pin}", markup=False)
        return Exit.FAILED
    if changed:
        again = "the steps that read it run again with the next `pulumi up`"
        words = f"{config.file.name}: {many(len(changed), 'digest')} written; {again}"
        console.print(words, markup=False, soft_wrap=True)
    return Exit.DONE


def _chosen(config: StackConfig, stack: str, pipeline: str) -> list[PipelineInput]:
    """The inputs that are to be pinned. Raises ConfigError where there are none."""
    inputs = inputs_of(config.values)
    if not inputs:
        raise ConfigError(f"no pipeline of the stack {stack} has inputs, as {page('pipeline.md')} describes them")
    names = dict.fromkeys(known.pipeline for known in inputs)
    if pipeline and pipeline not in names:
        fix = did_you_mean(pipeline, names, f"{', '.join(names)} has some")
        raise ConfigError(f"the pipeline {pipeline} has no inputs; {fix}")
    return [known for known in inputs if pipeline in ("", known.pipeline)]


def _changed(
    console: Console, config: StackConfig, stack: str, inputs: Sequence[PipelineInput]
) -> dict[stack_file.Keys, str]:
    """The digests that the stack file lacks, by the place of the input. Raises TransferError with all failures."""
    changed: dict[stack_file.Keys, str] = {}
    failures: list[str] = []
    with listings(stack, config.values) as places:
        for known in inputs:
            try:
                files = places.files(known.data)
            except FAILURES as error:
                failures.append(f"{known.name}: {error}")
                continue
            now, before = digest(files), known.data.digest
            change = f"{short_digest(before) or 'not pinned'} → {short_digest(now)}"
            amount = f"{many(len(files), 'file')}, {decimal(sum(file.size for file in files.values()))}"
            words = f"{known.name}: {known.data.url}: {amount}: {'as pinned' if now == before else change}"
            console.print(words, markup=False, soft_wrap=True)
            if now != before:
                changed[known.keys] = now
    if failures:
        raise TransferError("\n".join([f"{config.file.name} stays as it is:", *failures]))
    return changed
