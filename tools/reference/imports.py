"""Writes docs/import.md: what becomes of each field of a TFJob, a PyTorchJob or a Job.

python -m tools.reference.imports            # write it
python -m tools.reference.imports --check    # exit 1 where it is out of date
"""

import sys
from collections.abc import Sequence

from offline.files import write_or_check
from tools.importing.manifest import rules
from tools.reference.settings import PAGE as SETTINGS

PAGE = SETTINGS.with_name("import.md")

HEAD = """# Import a TFJob

```sh
make import MANIFEST=docs/examples/tfjob/tfjob.yaml NAME=line
make new STACK=line CLOUD=existing USES=line
make rehearse STACK=line
```

The first command writes a pipeline's folder below `workloads/` from a manifest that you have: a `TFJob` or
`PyTorchJob` of `kubeflow.org` (v1 or v1beta2), or a `Job` of `batch/v1`. It says line by line what it could not
carry over and what takes its place, and the head of the `pipeline.yaml` that it writes says it again. Nothing is
left out without a word.

| option | what it does |
| --- | --- |
| `MANIFEST=<path>` | the file; or a folder of files whose parts have one name, as kustomize's bases do |
| `NAME=<name>` | the pipeline's name; default: the training's |
| `CODE=<folder>` | its program's folder, copied; default: what its command starts, beside the manifest |

The training becomes one step called `train` with [`nodes`](distributed.md), as many as all roles have pods. The
other two commands write a stack file for it and run it on this machine, where its program is at hand: that of the
example is, in two processes that really train together.

- **All pods of a step are alike.** Each asks for the most that any role asks for. Where roles have commands or
  variables of their own, `by_role.py` starts the one of its pod.
- **`$(name)` and `%name%`** that the manifest leaves open, as bases of kustomize and ksonnet do, become parameters
  of the pipeline, to which the stack file gives values. A number of replicas that is left open is written as 1.
- **A mounted claim** becomes the step's `{output}` where it is written, and a folder of the store where it is only
  read. Copy the files there before the first run: `rehearsal.store_files` in the stack file does it for a
  rehearsal.
- **A program that the manifest does not name** is refused: without `command` the image's ENTRYPOINT runs, and only
  the image says which that is. So are other accelerators than whole GPUs of NVIDIA, and Jobs whose pods each do a
  piece of the work (`completions` that are not Indexed, or not all at once): a step has `items` for that; and a
  PyTorchJob whose image is not named by its digest, since TensorFlow's image has no PyTorch.
- **The image** is taken over where it is named by its digest. Else the step runs in TensorFlow's image for its
  pool, with the program from the folder.
- **Evaluators and parameter servers** never end by themselves; they are stopped when the chief and all workers
  have ended well.

## Fields

This table is written by `python -m tools.reference.imports` from `tools/importing/data/fields.toml`, which also
has the words of the command. `**` is the spec of a role or of the Job, `*` any index.

| field | becomes | else, or in addition |
| --- | --- | --- |
"""


def page() -> str:
    """The whole page."""
    rows = [
        f"| `{rule.at}` | {rule.becomes or 'not carried over'} | {rule.why} |"
        for rule in rules()
        if rule.at != "**"
    ]
    last = next(rule for rule in rules() if rule.at == "**")
    return HEAD + "\n".join([*rows, f"| any other | not carried over | {last.why} |"]) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with ``--check`` says whether it is up to date."""
    return write_or_check(PAGE, page(), "tools.reference.imports", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
