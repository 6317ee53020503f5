"""``make new PIPELINE=churn``: a folder below ``workloads/`` with a pipeline of two small programs."""

from pathlib import Path

import jinja2

from infra.pipelines.discovery import ROOT, WORKLOADS
from infra.schema.problems import Problem
from infra.settings.checks.pipelines import section_name_findings
from tools.new.writing import Draft, RefusedError, taken

TEMPLATES = Path(__file__).parent / "templates" / "pipeline"
RENDERED = ".j2"
"""What the name of a template ends in that is more than copied."""


def draft(name: str) -> Draft:
    """The pipeline's folder. Raises `RefusedError` with everything that keeps it from being one."""
    target = ROOT / WORKLOADS / name
    # The name of the folder is that of the section in stack files.
    problems = [
        Problem("PIPELINE", name, each.reason, each.fix.partition(", and write")[0])
        for each in section_name_findings((), name)
    ]
    if problems := problems or taken("PIPELINE", name, target, ROOT):
        raise RefusedError(problems)
    files = {
        path.name.removesuffix(RENDERED): _text(path, name)
        for path in sorted(TEMPLATES.iterdir())
        if path.is_file()
    }
    said = (
        f"Wrote {WORKLOADS}/{name}/: {', '.join(files)}",
        "Next:",
        f"  make new STACK=mine CLOUD=existing USES={name}    or another cloud",
        "  make rehearse STACK=mine",
        "docs/your-script.md says how your own programs take the place of prepare.py and train.py",
    )
    return Draft(target, files, said)


def _text(template: Path, name: str) -> str:
    text = template.read_text(encoding="utf-8")
    if template.suffix != RENDERED:
        return text
    return jinja2.Template(text, undefined=jinja2.StrictUndefined, keep_trailing_newline=True).render(name=name)
