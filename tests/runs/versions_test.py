"""A run that goes on with other packages than it began with: one line says which."""

import json

from folders import write_run

from saddle_jax.settings.config import Config
from saddle_jax.training import describe, loop
from saddle_jax.training.progress import Screen

SMALL = Config(agents=2, model="logistic", epochs=1, batch_size=128, eval_agents="never", devices="1")


class Told(Screen):
    """Keeps its warnings."""

    def __init__(self):
        super().__init__(quiet=True)
        self.warnings = []

    def warn(self, text):
        self.warnings.append(text)


def test_other_versions_are_told_once_and_only_by_a_run_that_goes_on(tmp_path):
    screen = Told()
    loop.train(SMALL, tmp_path, screen)
    about = json.loads((tmp_path / "config.json").read_text())
    about["versions"] |= {"jax": "0.1.2", "gone": "1"}
    (tmp_path / "config.json").write_text(json.dumps(about))
    loop.train(SMALL, tmp_path, screen)  # it has finished: nothing is computed
    assert screen.warnings == []
    (tmp_path / "result.json").unlink()
    loop.train(SMALL, tmp_path, screen)
    now = describe.versions()["jax"]
    assert screen.warnings == [
        f"this run began with other versions (jax 0.1.2 -> {now}): its numbers may differ in the last bits"
    ]


def test_a_record_that_says_nothing_of_versions_is_passed_over(tmp_path):
    for number, about in enumerate(({"versions": {}}, {"versions": describe.versions()})):
        told = []
        describe.tell_other_versions(write_run(tmp_path / str(number), about=about), told.append)
        assert told == []
