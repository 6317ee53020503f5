"""One rehearsal of a stack, from its configuration to the exit code."""

from pathlib import Path

from slipway.engine.project import SlipwayProject
from slipway.evaluated.model import document
from slipway.infra.exits import Exit
from slipway.infra.places import PROJECT
from slipway.infra.schema.problems import did_you_mean, listed
from slipway.infra.schema.yaml_files import ConfigError
from slipway.infra.stack.configuration import pipelines_of
from slipway.infra.terminal import new_console
from slipway.rehearse import session
from slipway.rehearse.beside import is_beside
from slipway.rehearse.cluster.job_controller import Target
from slipway.rehearse.output import outcome
from slipway.rehearse.output.outcome import Configuration, Options, Outcome
from slipway.rehearse.session import Session


def _require_pod(target: Target, configuration: Configuration) -> None:
    """Raises ConfigError where the stack has no step with the pod that is to be evicted."""
    steps = {
        f"{pipeline.name}-{step.name}": step.pods
        for pipeline in pipelines_of(configuration.settings.pipelines)
        for step in pipeline.steps
    }
    pods = [count for name, count in steps.items() if target.is_of(name)]
    if not pods:
        fix = did_you_mean(
            target.name, [*steps, *(name.rpartition("-")[2] for name in steps)], f"write {listed(steps)}"
        )
        raise ConfigError(f"--disrupt {target.name}: the stack has no such step; {fix}")
    if target.index is not None and target.index >= max(pods):
        last = max(pods) - 1
        has = f"its pods have the indexes 0 to {last}" if last else f"it has one pod: write `{target.name}`"
        raise ConfigError(f"--disrupt {target.name}:{target.index}: {has}")


def rehearse(
    stack: str,
    output: Path | None,
    config_file: Path | None,
    *,
    fresh: bool,
    disrupt: str | None,
    quiet: int,
    all_pipelines: bool,
    capacity: str | None,
    as_json: bool = False,
) -> Exit:
    """Runs the stack in the folder ``output``, and prints how it went.

    With ``as_json`` a document on standard output says so, and all else goes to standard error.
    """
    options = Options(stack, PROJECT, outcome.folder_for(stack, output), fresh, disrupt, quiet)

    def run() -> Outcome:
        configuration = session.configure(
            stack, PROJECT, config_file, all_pipelines=all_pipelines, capacity=capacity
        )
        if disrupt:
            _require_pod(Target.parse(disrupt), configuration)
        project = SlipwayProject.read(PROJECT)
        with project.in_folder():
            console = new_console(stderr=as_json)
            return Session(project.run, configuration, options, console, is_beside=is_beside).run()

    def run_for_document() -> Exit:
        # The summary needs none of it.
        from slipway.rehearse.output.document import kept_for_document, rehearsed  # noqa: PLC0415

        with kept_for_document() as stdout:
            done = run()
            stdout.write(document(rehearsed(done)))
        return done.exit_code

    return outcome.exit_code(run_for_document if as_json else lambda: run().exit_code)
