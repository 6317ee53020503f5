"""The starting notebook of a pipeline, cell by cell (`slipway.workloads.apps.notebook.cells`)."""

# %% [markdown]
# # This pipeline's run
#
# The store is mounted for reading; what you write lies in this folder, which is kept when the notebook is stopped.
# Whoever has the token of this server runs programs as you.

# %%
import os

from IPython.display import Image, Markdown, display

from slipway.workloads.apps.notebook import drawing, examples
from slipway.workloads.apps.notebook.runs import Runs
from slipway.workloads.apps.notebook.served import Model, ModelError

runs = Runs.here()
rows = ["| step | newest result | made | results |", "| --- | --- | --- | --- |"]
for step in runs.steps:
    results = runs.results(step)
    newest = f"{results[0].digest} | {results[0].made:%Y-%m-%d %H:%M} UTC" if results else "none yet |"
    rows.append(f"| {step} | {newest} | {len(results)} |")
display(Markdown("\n".join(rows)))

# %% [markdown]
# ## What it came to
#
# `runs.result("train")` is the newest whole result of a step, `runs.results("train")` are all of them.

# %%
for step, title, value in runs.numbers():
    print(f"{step}: {title} {value:g}")
for result, declared, points in runs.curves():
    display(Image(drawing.curves(result, declared, points)))
for picture in runs.pictures():
    display(Image(str(picture)))

# %% [markdown]
# ## Ask the served model
#
# Its address is in the environment where the stack runs it (`apps.serving`). The version is the real one: it is
# asked for, and named in the request.

# %%
address, name = os.environ.get("SERVING_ADDRESS"), os.environ.get("SLIPWAY_MODEL", "")
pattern = os.environ.get("SLIPWAY_EXAMPLES", "")
if not address:
    print("This stack serves no model.")
else:
    model = Model(address, name)
    try:
        print("versions:", dict(model.versions()))
        version = model.version()
        ((key, (dtype, shape)),) = model.inputs(version).items()
        print(f"version {version} takes {key}: {dtype} {shape}")
        files = runs.files(pattern)[:3] if pattern else []
        if files:
            answer = model.predict([examples.instance(file, dtype, shape) for file in files], version)
            print(f"{len(files)} examples by version {answer.version} in {answer.milliseconds:.0f} ms")
            for file, outputs in zip(files, answer.outputs, strict=True):
                shares = drawing.shares(outputs)
                best = max(range(len(shares)), key=shares.__getitem__)
                title = f"{file.name}: class {best}, {shares[best]:.1%}"
                display(Image(str(file), width=84), Image(drawing.bars(shares, title=title)))
    except ModelError as error:
        print(error)

# %% [markdown]
# ## Run a step by hand
#
# `runs.command("train")` is the step's command line on the newest inputs. `runs.run("train", epochs=1)` runs it
# here, with its result below `by-hand/`: the store stays as it is. Where the notebook has a GPU, the step uses it.

# %%
for step in runs.steps:
    try:
        print(" ".join(runs.command(step)), "\n")
    except LookupError as error:
        print(f"{step}: {error}\n")
