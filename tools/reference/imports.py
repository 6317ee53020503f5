"""Writes docs/import.md: what becomes of each field of a TFJob, a Job and the like.

python -m slipway.tools.reference.imports            # write it
python -m slipway.tools.reference.imports --check    # exit 1 where it is out of date
"""

import sys
from collections.abc import Sequence

from slipway.offline.files import write_or_check
from slipway.tools.importing.document import DATA, rules
from slipway.tools.reference.settings import PAGE as SETTINGS

PAGE = SETTINGS.with_name("import.md")

MANIFESTS = DATA.with_name("manifests.md")
"""The part of the page about public manifests."""

HEAD = """# Import a TFJob, a Job, and the like

```sh
make import MANIFEST=docs/examples/tfjob/tfjob.yaml NAME=line
make new STACK=line CLOUD=existing USES=line
make rehearse STACK=line
```

The first command writes a pipeline's folder below `workloads/` from a manifest that you have. It says line by line
what it could not carry over and what takes its place, and the head of the `pipeline.yaml` that it writes says it
again. Nothing is left out without a word; what would run as something else is refused.

| kind | group | what becomes of it |
| --- | --- | --- |
| `TFJob`, `PyTorchJob`, `JAXJob` | `kubeflow.org` | a step with [`nodes`](distributed.md) |
| `XGBoostJob`, `PaddleJob` | `kubeflow.org` | the same; a PaddleJob without masters |
| `TrainJob` | `trainer.kubeflow.org` | the same, where its runtime is in the file, too |
| `Job` | `batch` | a step; with `nodes`, where it is Indexed and all its pods run at once |
| `CronJob` | `batch` | the same, and the `schedule` that the stack file needs is printed |
| `JobSet` | `jobset.x-k8s.io` | the same, where it has one replicated Job with `replicas: 1` |
| `Job` | `batch.volcano.sh` | a step with `nodes`: one task, or tasks called master, worker, ps, evaluator |

`MPIJob`, Ray's kinds, Argo's `Workflow`, `SparkApplication` and some others are refused with what to do instead.

| option | what it does |
| --- | --- |
| `MANIFEST=<path>` | the file; or a folder of files whose parts have one name, as kustomize's bases do |
| `NAME=<name>` | the pipeline's name; default: the training's |
| `CODE=<folder>` | its program's folder, copied; default: what its command starts, beside the manifest |

The training becomes one step called `train`. The
other two commands write a stack file for it and run it on this machine, where its program is at hand: that of the
example is, in two processes that really train together.

- **All pods of a step are alike.** Each asks for the most that any role asks for. Where roles have commands or
  variables of their own, `start.py` starts the one of its pod.
- **`$(name)` and `%name%`** that the manifest leaves open, as bases of kustomize and ksonnet do, become parameters
  of the pipeline, to which the stack file gives values. A number of replicas that is left open is written as 1.
- **What a controller tells the program** by variables of its own (`COORDINATOR_ADDRESS` of a JAXJob,
  `PADDLE_MASTER`, `DMLC_TRACKER_URI`, `VC_TASK_INDEX`, the index of a Job) `start.py` sets, from [those of a
  step](distributed.md). It fills in `$(RANK)` and the like, too, and the host name of the first pod becomes
  `$(MASTER_ADDR)`. Host names of other pods, and the host files of Volcano's plugin `svc`, are refused.
- **A bucket, a claim or an NFS folder** that is mounted becomes a folder of the store with its name, where it is
  only read: a reference in the command that names its path, else [`mounts`](pipeline.md) at the path that the
  program has built in. One that may be written becomes the step's `{output}` where the command names a single
  path of it; otherwise a folder of the store that the program may write to, which is no part of its result. Copy
  the files into the store before the first run: `rehearsal.store_files` in the stack file does it for a
  rehearsal.
- **`jax.distributed.initialize()`** without arguments asks the Kubernetes API for the other pods, which a step
  may not: where the command has it, the head of `pipeline.yaml` says what to pass.
- **A program that the manifest does not name** is refused: without `command` the image's ENTRYPOINT runs, and only
  the image says which that is. So are other accelerators than whole GPUs of NVIDIA, and Jobs whose pods each do a
  piece of the work (`completions` that are not Indexed, or not all at once): a step has `items` for that; and a
  PyTorchJob, or any training in a framework but TensorFlow, whose image is not named by its digest, since
  TensorFlow's image has no PyTorch.
- **The image** is taken over where it is named by its digest. Else the step runs in TensorFlow's image for its
  pool, with the program from the folder.
- **Evaluators and parameter servers** never end by themselves; they are stopped when the chief and all workers
  have ended well.

"""

FIELDS = """## Fields

This table is written by `python -m slipway.tools.reference.imports` from `tools/importing/data/fields.toml`, which
also has the words of the command. `**` is the spec of a role or of the Job, `*` any index.

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
    return (
        HEAD
        + MANIFESTS.read_text(encoding="utf-8")
        + FIELDS
        + "\n".join([*rows, f"| any other | not carried over | {last.why} |"])
        + "\n"
    )


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with ``--check`` says whether it is up to date."""
    return write_or_check(PAGE, page(), "slipway.tools.reference.imports", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
