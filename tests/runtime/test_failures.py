"""Why a program failed, from the end of its log, by the words that libraries really print."""

import re

import pytest

from slipway.runtime.failures import CAUSES, STACK_KEYS, explain, known

TRACE = 'Traceback (most recent call last):\n  File "train.py", line 5, in <module>\n    train()\n'
CHAINED = f"{TRACE}KeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\n"
TORCHRUN = """E1129 10:00:00.000000 7 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1)
Traceback (most recent call last):
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
  exitcode  : 1 (pid: 12)
============================================================
"""
WATCHDOG = (
    "[rank1]:[E1129 10:00:00.000000000 ProcessGroupNCCL.cpp:685] [Rank 1] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE) ran for 600043 milliseconds before timing out."
)

IN_SCRIPT = "line 2 of the script failed with 2"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (f"epoch 1\n{TRACE}ValueError: expected 3 columns\n", "ValueError: expected 3 columns"),
        (f"{CHAINED}{TRACE}app.errors.NoRows: 0 rows\n", "app.errors.NoRows: 0 rows"),
        (f"[rank0]: {TRACE}[rank0]: ValueError: bad\n{TORCHRUN}", "ValueError: bad"),
        (f"{TRACE}ValueError: bad\nerror: churn.train: ValueError: bad (exit code 1)", "ValueError: bad"),
        ("error: test accuracy 0.1 is below 0.9 (exit code 3)", "test accuracy 0.1 is below 0.9"),
        (f"{TRACE}ValueError: bad\nerror: python failed; what it wrote is above (exit code 1)", "ValueError: bad"),
        ("Epoch 3\nFatal error: cannot open data.csv\nbye", "Fatal error: cannot open data.csv"),
        ("bash: line 1: pyhton: command not found", "bash: line 1: pyhton: command not found"),
        (WATCHDOG, WATCHDOG.partition(":")[2]),
        (
            f"usage: fit.py [-h]\nfit.py: error: unrecognized arguments: --mdoel\nerror: {IN_SCRIPT}\n"
            f"error: p.fit: error: {IN_SCRIPT} (exit code 2)",
            "fit.py: error: unrecognized arguments: --mdoel",
        ),
        (f"{TRACE}ValueError: bad\nerror: {IN_SCRIPT}", "ValueError: bad"),
        (f"Epoch 3\nerror: {IN_SCRIPT}", IN_SCRIPT),
        ("Epoch 3, error 0.12\nUse: CPU 1.00 cores", ""),
        ("", ""),
    ],
)
def test_the_line_is_the_programs_own_error_and_no_others(log: str, line: str) -> None:
    assert explain(log).line == line


@pytest.mark.parametrize(
    ("words", "kind", "key"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of "
         "14.58 GiB of which 3.00 GiB is free.", "gpu memory", "pool"),
        ("ResourceExhaustedError: OOM when allocating tensor with shape[64,112,112,64] and type float on "
         "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc", "gpu memory", "pool"),
        ("ResourceExhaustedError: OOM when allocating tensor with shape[9,9] and type float on "
         "/job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu", "memory", "memory"),
        ("RuntimeError: CUDA error: out of memory", "gpu memory", "pool"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "gpu memory",
         "pool"),
        ("RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error. It is possible that "
         "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
         "shared memory", "shm"),
        ("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory "
         "(shm).", "shared memory", "shm"),
        ("RuntimeError: unable to write to file </torch_61_3>: No space left on device (28)", "shared memory",
         "shm"),
        ("Error while creating shared memory segment /dev/shm/nccl-ab12 (size 33030528), error: No space left on "
         "device (28)", "shared memory", "shm"),
        ("OSError: [Errno 28] No space left on device: '/store/x/train/1/model.bin'", "disk", "store.size"),
        ("OSError: [Errno 28] No space left on device: '/tmp/cache/x'", "disk", "ephemeral_storage"),
        ("cp: error writing '/tmp/x': No space left on device", "disk", "ephemeral_storage"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB for an array with shape (1,)",
         "memory", "memory"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "memory", "memory"),
        ("run.sh: line 3:    12 Killed                  python train.py", "memory", "memory"),
        ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory", "library",
         "requirements"),
        ("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory", "library",
         "image"),
        ("ImportError: libcuda.so.1: cannot open shared object file: No such file or directory", "no gpu", "gpus"),
        ("RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU", "no gpu",
         "gpus"),
        ("AssertionError: Torch not compiled with CUDA enabled", "no gpu", "requirements"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 12040).", "driver", "image"),
        ("CUDA error: CUDA driver version is insufficient for CUDA runtime version", "driver", "image"),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0, please update your driver",
         "driver", "image"),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver", ""),
        ("CUDA error: no kernel image is available for execution on the device", "gpu model", "image"),
        ("CUDA error: uncorrectable ECC error encountered", "broken gpu", ""),
        ("CUDA error: device-side assert triggered", "gpu program", "environment"),
        ("Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.  CuDNN library needs to have "
         "matching major version and equal or higher minor version.", "cudnn", "requirements"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH", "cudnn", "requirements"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "cudnn", "pool"),
        ("NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000", "nccl", ""),
        ("Bootstrap : no socket interface found", "nccl", "environment"),
        ("ModuleNotFoundError: No module named 'pandaz'", "module", "requirements"),
        ("ImportError: cannot import name 'x' from 'keras.utils' (/p/keras/utils/__init__.py)", "module",
         "requirements"),
        ("exec /usr/bin/python: exec format error", "platform", "image"),
        ("OSError: [Errno 8] Exec format error: './run.sh'", "platform", "image"),
        ("bash: line 1: nvcc: command not found", "program", "image"),
        ("python was ended by SIGILL", "processor", "pool"),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "network", "connects"),
        ("urllib3.exceptions.ConnectTimeoutError: (<HTTPConnection>, 'Connection to 10.0.0.9 timed out.')",
         "network", "egress.allow"),
        (WATCHDOG, "others", ""),
        ("ncclRemoteError: remote process exited or there was a network error", "others", ""),
        ("OOMKilled: its limit is 8Gi", "memory", "memory"),
        ("DeadlineExceeded: 4 s", "time limit", "time_limit"),
        ("ValueError: expected 3 columns", "", ""),
        ("loss 0.12, step 3", "", ""),
    ],
)  # fmt: skip
def test_errors_that_are_known_have_their_cause_and_the_key_that_mends_them(
    words: str, kind: str, key: str
) -> None:
    failure = (
        known(words) if words.startswith(("OOMKilled", "DeadlineExceeded")) else explain(f"epoch 3\n{words}\n")
    )
    assert (failure.kind, failure.key) == (kind, key)
    assert bool(failure.fix) == bool(kind)


def test_a_cause_comes_before_those_that_it_explains() -> None:
    assert explain(f"RuntimeError: CUDA error: out of memory\n{WATCHDOG}").kind == "gpu memory"


def test_a_warning_at_the_beginning_of_a_long_log_is_no_cause() -> None:
    log = "failed call to cuInit: CUDA_ERROR_NO_DEVICE\n" + "epoch\n" * 100 + f"{TRACE}ValueError: bad\n"
    assert explain(log).kind == ""


def test_advice_names_the_key_where_it_is_written() -> None:
    memory, module = known("MemoryError"), known("ModuleNotFoundError: No module named 'x'", lock="make lock")
    assert "`slipway:pipelines.a.steps.b.memory`" in memory.advice("slipway:pipelines.a.steps.b")
    assert memory.advice().endswith("`memory`")
    assert "make lock" in module.advice("slipway:pipelines.a.steps.b")
    assert module.advice("slipway:pipelines.a.steps.b").endswith("`requirements`")
    assert "`slipway:egress.allow`" in known("[Errno 113] no route").advice()


def test_each_row_can_be_said_and_has_its_source_with_a_version() -> None:
    for cause in CAUSES:
        groups = re.compile(cause.pattern).groupindex.keys()
        assert {*re.findall(r"\{(\w+)\}", cause.says + cause.fix)} <= {*groups, "path", "file", "host", "lock"}, (
            cause
        )
        assert re.search(r"\d|runc", cause.source), cause
        assert not cause.says.endswith(".")
    assert {"memory", "time_limit"} <= STACK_KEYS
