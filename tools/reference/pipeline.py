"""Writes docs/pipeline.md, the reference of `pipeline.yaml`, and docs/pipeline.schema.json, its JSON Schema.

python -m slipway.tools.reference.pipeline            # write them
python -m slipway.tools.reference.pipeline --check    # exit 1 where one is out of date
"""

import json
import sys
from collections.abc import Sequence

from slipway.infra.pipelines.file.shape import SECTION_KEYS, PipelineFile
from slipway.infra.pipelines.matrix import MOST_VARIANTS, NAME_LIMIT
from slipway.infra.pipelines.results import ITEMS_FILE
from slipway.infra.schema.problems import listed
from slipway.offline.files import write_or_check
from slipway.tools.reference.settings import PAGE as SETTINGS
from slipway.tools.reference.settings import Section, describe

PAGE, SCHEMA = SETTINGS.with_name("pipeline.md"), SETTINGS.with_name("pipeline.schema.json")

HEAD = f"""# Keys of pipeline.yaml

Every key that a [`pipeline.yaml`](steps.md#add-a-pipeline) may have. Keys that are not listed are refused;
all problems of the file are listed at once, with those of the stack file. Names in `<>` are yours to choose. This
page is written by `python -m slipway.tools.reference.pipeline` from `infra/pipelines/file/shape.py`; change them
there.

An editor that knows JSON Schema completes and checks the file by [pipeline.schema.json](pipeline.schema.json):
begin it with `# yaml-language-server: $schema=../../docs/pipeline.schema.json`.

- Paths are below the folder of the file; those of results below `{{output}}`.
- A step's name has at most {NAME_LIMIT} characters: lower-case letters, digits and hyphens. A parameter's name has
  letters, digits, `_` and `-`, and is neither a step's nor {listed(SECTION_KEYS)}.
- The steps that a matrix makes are called `<step>-<value>-<value>`, such as `train-t4-100`, with a digest where
  that would be too long or could mean two things. A step becomes at most {MOST_VARIANTS}.
- The words of `run`, of `rehearsal.run` and the values of `environment` may hold references: `{{output}}`,
  `{{store}}`, `{{<step>}}`, `{{<input>}}`, `{{<parameter>}}`. A boolean is written `true` or `false`.
- An input's name is as a step's, and no step's, parameter's or service's. [Data that is
  there](your-program.md#data-that-is-there) says what a stack file has of it, below `inputs`: an address, or a
  section with `url`, `digest` and `grants`.
- A service's name has letters, digits and hyphens after a letter, and is no step's. Steps that name it in
  `connects`, or as `queue` of their `items`, find host and port in `<SERVICE>_ADDRESS` and the password in
  `<SERVICE>_PASSWORD`: `FEATURE_CACHE_ADDRESS` for `feature-cache`.
- The program of a step with `items` runs once for each item, and its words may hold `{{item}}` (the file),
  `{{output}}` (a directory of the item's own), and with `mode: ordered` `{{previous}}` (the directory of the
  result of the item before; an empty one for the first, and for each where a stack file says `parallel`). It
  knows nothing of workers and queues. The step's
  directory has `{ITEMS_FILE}`: a row for each item, with its state, attempts and seconds, the directory `path`
  of its result, and the plain values of the `summary.json` that the program leaves there. Later steps read that
  file.
- A step with `nodes` runs on several nodes at once, a pod on each: `nodes: 2`, or a section with `count`, `roles`,
  `wait` and `port`. In a stack file it has the keys `nodes` and `wait` beside its pool. With another number there,
  the pods with the role `worker` become more or fewer. Another number of nodes is another result, and the step
  runs again. It has neither `items` nor `workers`.
- In a stack file a step with `items` has the keys `workers`, `mode` and `assignment` (`queue`, or `static` for
  shares without a queue) beside its pool, and each service a section below `services`. A service to which no step
  connects with these settings is not there.
- An app's name is as a service's, and no step's or service's either. An app runs where the stack file's section
  names it below `apps`, with the keys `pool`, `cpu`, `memory`, `gpus`, `replicas`, `autoscale`, `image` and
  `ingress`. Apps that name it in `connects` find host and port in `<APP>_ADDRESS`, and its other ports in
  `<APP>_<PORT>_ADDRESS`. [Apps](apps.md) says how they run.
- The words of an app may hold `{{port}}`, `{{token}}`, `{{data}}` and `{{pipeline}}`. A reference to a step with a
  matrix stands alone, as `{{train}}`, and becomes a word for each of its variants.
"""


def page() -> str:
    """The whole page."""
    return HEAD + describe(Section("pipeline.yaml", "", PipelineFile, top=True))


def schema() -> str:
    """The JSON Schema of the file."""
    content = PipelineFile.model_json_schema()
    content["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    content["title"] = "A pipeline of Slipway"
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Writes both, or with ``--check`` says whether they are up to date."""
    module = "slipway.tools.reference.pipeline"
    return max(
        [write_or_check(PAGE, page(), module, arguments), write_or_check(SCHEMA, schema(), module, arguments)]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
