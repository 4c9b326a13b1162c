"""A run that goes on with other packages than it began with: one line says which."""

import json

from folders import write_run

from saddle_jax.training import describe, loop
from saddle_jax.training.progress import Screen


class Told(Screen):
    """Keeps its warnings."""

    def __init__(self):
        super().__init__(quiet=True)
        self.warnings = []

    def warn(self, text):
        self.warnings.append(text)


def test_other_versions_are_told_once_and_only_by_a_run_that_goes_on(small, copied):
    screen = Told()
    about = json.loads((copied / "config.json").read_text())
    about["versions"] |= {"jax": "0.1.2", "gone": "1"}
    (copied / "config.json").write_text(json.dumps(about))
    loop.train(small, copied, screen)  # it has finished: nothing is computed
    assert screen.warnings == []
    (copied / "result.json").unlink()
    loop.train(small, copied, screen)
    now = describe.versions()["jax"]
    assert screen.warnings == [
        f"this run began with other versions (jax 0.1.2 -> {now}): its numbers may differ in the last bits"
    ]


def test_a_record_that_says_nothing_of_versions_is_passed_over(tmp_path):
    for number, about in enumerate(({"versions": {}}, {"versions": describe.versions()})):
        told = []
        describe.tell_other_versions(write_run(tmp_path / str(number), about=about), told.append)
        assert told == []
