"""How far a program is, read from lines that real programs write."""

import pytest

from slipway.command.watch.session import describe_waste
from slipway.command.watch.states import Reading, together

KERAS_BAR = (
    "\r\x1b[1m 1/60\x1b[0m \x1b[37m━━━━━━━━━━━━━━━━━━━━\x1b[0m \x1b[1m12s\x1b[0m 209ms/step - accuracy: "
    "0.0938 - loss: 2.3"
    "\r\x1b[1m45/60\x1b[0m \x1b[32m━━━━━━━━━━━━━━━\x1b[0m\x1b[37m━━━━━\x1b[0m \x1b[1m0s\x1b[0m 3ms/step "
    "- accuracy: 0.8108"
    " - loss: 0.6021"
)


def read(*lines: str) -> Reading:
    reading = Reading()
    for line in lines:
        reading.feed(line)
    return reading


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            [
                "Epoch 3/12 - loss 0.1234 - accuracy 0.9612 - validation accuracy 0.9700 - learning rate 0.001 - "
                "41,210 images/s"
            ],
            "epoch 3 of 12 is done, loss 0.1234, accuracy 0.9612, 41,210 images/s",
        ),
        (["Epoch 2/5", KERAS_BAR], "epoch 2 of 5, step 45 of 60, loss 0.6021, accuracy 0.8108"),
        (
            ["Epoch 2/5", "60/60 - 2s - 31ms/step - accuracy: 0.9111 - loss: 0.3212 - val_loss: 0.4"],
            "epoch 2 of 5 is done, loss 0.3212, accuracy 0.9111",
        ),
        (
            ["Epoch 4:  45%|████▌     | 45/100 [00:01<00:02, 30.1it/s, v_num=0, train_loss=0.312]"],
            "epoch 4, step 45 of 100, loss 0.312, 30.1 it/s",
        ),
        (["{'loss': 0.4521, 'grad_norm': 1.2, 'epoch': 1.25}"], "epoch 1.25, loss 0.4521"),
        (
            ["step 1200/5000: loss = 2.31e-1, 512.5 tokens/sec"],
            "step 1200 of 5000, loss 2.31e-1, 512.5 tokens/sec",
        ),
        (["[epoch 7] val_loss=0.1 loss=0.25"], "epoch 7, loss 0.25"),
        (["Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.1"], "epoch 1, loss 2.1"),
        (["Downloading the data", "Wrote 12 files"], "Wrote 12 files"),
    ],
)
def test_the_newest_lines_say_how_far_it_is(lines: list[str], says: str) -> None:
    assert read(*lines).progress.says == says


def test_a_new_epoch_is_not_done_because_the_one_before_it_was() -> None:
    reading = read("Epoch 1/5", "60/60 - 2s - 31ms/step - loss: 0.3212")
    assert reading.progress.epoch_over
    reading.feed("Epoch 2/5")
    assert reading.progress.says == "epoch 2 of 5, loss 0.3212"
    assert reading.progress.share == pytest.approx(1 / 5)


def test_a_bar_that_is_drawn_over_itself_is_one_line() -> None:
    assert len(read("Epoch 2/5", KERAS_BAR).tail) == 2


def test_items_of_all_workers_are_counted_once() -> None:
    queue = "put 10 items into the queue, of which 3 are done"
    one = read(queue, "day-1: claimed (attempt 1)", "day-1: done in 3.2 s", "day-2: claimed (attempt 1)")
    other = read(
        "day-3: claimed (attempt 1)", "day-3: failed: exit code 3; to be tried again", "day-3: done in 1.0 s"
    )
    third = read("day-4: claimed (attempt 3)", "day-4: failed: exit code 3; set aside", "day-1: done before")
    found = together([one, other, third])
    assert found
    assert (found.items, found.failed, found.of) == (2, 1, 10)


def test_items_are_at_least_as_many_where_the_beginning_of_a_log_is_missing() -> None:
    found = together([read("day-1: done in 3.2 s")], cut=True)
    assert found
    assert found.says == "at least 1 items done"


def test_programs_of_several_nodes_run_only_once_all_pods_are_there() -> None:
    reading = read("waiting for 1 of 2 pods: rank 1 at train-1.train:2222, 30 s of 600 s")
    assert reading.progress.gathering
    reading.feed("Generation 1: all 2 pods are here, all programs start")
    assert not reading.progress.gathering
    reading.feed("Generation 1 ended: pod 1 was lost (its connection broke)")
    assert reading.progress.gathering == "all programs were stopped: pod 1 was lost (its connection broke)"
    reading.feed("Generation 2: all 2 pods are here, all programs start again")
    assert (reading.progress.generation, reading.progress.gathering) == (2, "")


def test_a_program_that_prints_of_waiting_is_not_taken_for_one_of_several_nodes() -> None:
    assert not read("waiting for the data").progress.gathering


def test_idle_gpus_are_told_from_the_lines_of_what_measures_them() -> None:
    reading = Reading()
    reading.feed("Epoch 1/3 - loss 0.5")
    reading.feed("Use: GPU busy 12 %, idle 82 % of 600 s, GPU memory at most 3.0 of 16.0 GiB")
    assert (reading.progress.busy, reading.progress.wasted) == (0.12, False)
    assert reading.progress.last == "Epoch 1/3 - loss 0.5"
    reading.feed("warning: the GPU did next to nothing for 82 % of 600 s, which are paid all the same")
    assert (reading.progress.idle, reading.progress.wasted) == (0.82, True)
    assert "GPU 12 % busy" in reading.progress.says
    assert reading.progress.node_up is None
    reading.feed("Use: GPU unknown: no driver, memory at most 652 MiB, node up 1240 s, program 590 s")
    assert (reading.progress.node_up, reading.progress.program, reading.progress.loading) == (1240, 590, 0)
    reading.feed("Use: GPU busy 12 %, idle 82 % of 600 s, node up 1840 s, loading 73 s, program 1190 s")
    assert (reading.progress.node_up, reading.progress.program, reading.progress.loading) == (1840, 1190, 73)
    assert describe_waste(0.8, 1.75) == "GPU IDLE 80 % of the time: about $1.40 of $1.75 bought nothing"
