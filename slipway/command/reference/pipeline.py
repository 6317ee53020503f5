"""Writes docs/pipeline.md, the reference of `pipeline.yaml`, and docs/pipeline.schema.json, its JSON Schema.

python -m slipway.command.reference.pipeline            # write them
python -m slipway.command.reference.pipeline --check    # exit 1 where one is out of date
"""

import json
import sys
from collections.abc import Sequence

from slipway.command.reference.settings import PAGE as SETTINGS
from slipway.command.reference.settings import describe
from slipway.files import write_or_check
from slipway.infra.pipelines.app_kinds.contract import AppKind
from slipway.infra.pipelines.file.section import SECTION_KEYS
from slipway.infra.pipelines.file.shape import PipelineFile
from slipway.infra.pipelines.matrix import MOST_VARIANTS, NAME_LIMIT
from slipway.infra.schema.problems import listed

PAGE, SCHEMA = SETTINGS.with_name("pipeline.md"), SETTINGS.with_name("pipeline.schema.json")

HEAD = f"""# Keys of pipeline.yaml

Every key of a `pipeline.yaml`, the file by which a folder declares a pipeline.
[Steps](steps.md#add-a-pipeline) shows one; `slipway explain steps.run` says the rest of a key. A key that is not
listed is refused. Names in `<>` are yours; [values](settings.md#how-values-are-written) are as in a stack file.

An editor that knows JSON Schema completes and checks the file by [pipeline.schema.json](pipeline.schema.json):
in a clone, begin it with `# yaml-language-server: $schema=../../docs/pipeline.schema.json`. With the package, tell
the editor the path of that file, which is beside this page: in VS Code by the setting "yaml.schemas".

**Names.** Give steps, parameters, inputs, services and apps different names. A step's has at most {NAME_LIMIT}
characters: lower-case letters, digits and hyphens. A parameter's has letters, digits, `_` and `-`, and is none
of {listed(SECTION_KEYS)}.

**Paths** are below the folder of the file; those of results below `{{output}}`.

**References** stand in `run`, `rehearsal.run` and the values of `environment`: `{{output}}`, `{{store}}`,
`{{<step>}}`, `{{<input>}}`, `{{<parameter>}}`; those of an app also `{{port}}`, `{{token}}`, `{{data}}` and
`{{pipeline}}`. A boolean becomes `true` or `false`. In an app, a reference to a step with a matrix stands alone
and becomes a word for each variant.

**A matrix** makes steps called `<step>-<value>-<value>`, such as `train-t4-100`, with a digest where that would
be too long or ambiguous; at most {MOST_VARIANTS}.

**Addresses.** Whoever names a service or an app in `connects` finds its host and port in `<NAME>_ADDRESS`
(`FEATURE_CACHE_ADDRESS` for `feature-cache`), a service's password in `<SERVICE>_PASSWORD`, and an app's other
ports in `<APP>_<PORT>_ADDRESS`.

**In the stack file** the pipeline's section has a key for each parameter, and:

| declared here | there |
|---|---|
| a step | [the keys of every step](settings.md#keys-of-every-step) below `steps` |
| with `items` | also `workers`, `mode`, and `assignment`: `queue`, or `static` for shares without a queue |
| with `nodes` | also `nodes`, of which another number runs the step again, and `wait`; no `items` |
| an input | [its address](own-data.md#data-that-is-there), or `url`, `digest` and `grants`, below `inputs` |
| a service | [its keys](settings.md#keys-of-every-service) below `services`; not created where no step connects |
| an [app](apps.md) | [its keys](settings.md#keys-of-every-app) below `apps`; it runs only where named there |
"""

NEXT = """
## Next

- [Steps](steps.md): what a program finds when it starts, [items](steps.md#a-step-that-works-on-items) included
- [Settings](settings.md): where the stack file says where steps run
"""


def page() -> str:
    """The whole page."""
    return (
        HEAD
        + describe("pipeline.yaml", PipelineFile, {AppKind: ("Keys of an app of any kind", "apps.<name>")})
        + NEXT
    )


def schema() -> str:
    """The JSON Schema of the file."""
    content = PipelineFile.model_json_schema()
    content["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    content["title"] = "A pipeline of Slipway"
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Writes both, or with ``--check`` says whether they are up to date."""
    module = "slipway.command.reference.pipeline"
    return max(
        [write_or_check(PAGE, page(), module, arguments), write_or_check(SCHEMA, schema(), module, arguments)]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
