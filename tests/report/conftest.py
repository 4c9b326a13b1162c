"""What the tests of figures share."""

import pytest

from saddle_jax.report import figures, plots


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were made, for a look at their axes."""
    made = []

    def spy(*arguments, **options):
        figure, axes = original(*arguments, **options)
        made.append(figure)
        return figure, axes

    original = plots.new_figure
    monkeypatch.setattr(figures, "new_figure", spy)
    monkeypatch.setattr(plots, "new_figure", spy)
    return made
