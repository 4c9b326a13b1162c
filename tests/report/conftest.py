"""What the tests of figures share."""

import pathlib

import pytest

from saddle_jax.report import figures, plots


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were made, for a look at their axes; only the first one is rendered."""
    from matplotlib.figure import Figure

    made = []
    rendering, making = Figure.savefig, plots.new_figure

    def spy(*arguments, **options):
        figure, axes = making(*arguments, **options)
        made.append(figure)
        return figure, axes

    def save(figure, path, **options):
        if not made or figure is made[0]:
            rendering(figure, path, **options)
        else:
            pathlib.Path(path).write_bytes(b"\x89PNG")

    monkeypatch.setattr(figures, "new_figure", spy)
    monkeypatch.setattr(plots, "new_figure", spy)
    monkeypatch.setattr(Figure, "savefig", save)
    return made
