"""What is due after which step, written out by hand."""

import dataclasses

import pytest

from saddle_jax.settings.settings import Settings
from saddle_jax.training.loop import Calendar

CONFIG = Settings(
    epochs=6, log_every_steps=4, eval_every_epochs=2, checkpoint_every_steps=7, keep_every_epochs=3,
    sharpness_every_epochs=3,
)  # fmt: skip
CALENDAR = Calendar(CONFIG, steps=30, steps_per_epoch=5, steps_per_dispatch=2)


def test_everything_is_due_at_its_own_multiples_and_at_the_end():
    due = {step: CALENDAR.due(step) for step in range(1, 31)}

    def steps(what):
        return [step for step, entry in due.items() if getattr(entry, what)]

    assert steps("log") == [4, 8, 12, 16, 20, 24, 28, 30]
    assert steps("evaluate") == [10, 20, 30]
    assert steps("measure") == [15, 30]
    assert steps("save") == [7, 14, 15, 21, 28, 30]  # every seventh, and every third epoch for good
    assert steps("end") == [30]
    assert steps("stop") == sorted({*steps("evaluate"), *steps("measure"), *steps("save"), 30})
    assert CALENDAR.keep_every == 15


def test_nothing_is_measured_or_kept_unless_asked_for():
    config = dataclasses.replace(CONFIG, sharpness_every_epochs=0, keep_every_epochs=0)
    calendar = dataclasses.replace(CALENDAR, config=config)
    assert not any(calendar.due(step).measure for step in range(1, 31))
    assert [step for step in range(1, 31) if calendar.due(step).save] == [7, 14, 21, 28]


@pytest.mark.parametrize("several", [1, 2, 3])
def test_a_call_of_several_steps_passes_over_nothing_that_is_due(several):
    calendar = dataclasses.replace(CALENDAR, steps_per_dispatch=several)
    for step in range(30):
        count = calendar.together(step)
        assert count in (1, several)
        assert not any(calendar.due(between).log for between in range(step + 1, step + count))
        assert (step % 5) + count <= 5
        assert count == 1 or step % several == 0  # the same calls, wherever a run was resumed
