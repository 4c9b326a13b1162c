"""The graph of a run that is read from its folder: nothing of a user's own is imported for it."""

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import RunError
from saddle_jax.core.mixing import Graphs
from saddle_jax.graphs import recorded, spelling
from saddle_jax.report.gathered import Run
from saddle_jax.settings.config import build_topology


def topology_of(run: Run) -> Graphs | None:
    """Returns the graph of a run; of one that is not ours what was recorded, None if it was too large."""
    if spelling.is_ours(run.config.topology):
        return build_topology(run.config)
    links = run.fact("topology", "graphs")
    if links is None:
        return None
    name = str(run.fact("topology", "name"))
    try:
        return recorded.from_record(name, run.config.agents, links)
    except ArgumentError as error:
        raise RunError(f"{run.name}: topology of config.json cannot be read: {error}") from error
