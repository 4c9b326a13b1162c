"""What a shell can complete: verbs, their options, and the values of those that name something.

Finding it out imports everything, JAX too. So it is written down once, in completion_words.json, from which
the scripts are made in no time; a test compares the file with what is found.
"""

import contextlib
import importlib
import importlib.resources
import json
import pathlib
from typing import Any

from absl import flags

from saddle_jax.base.files import in_one_go
from saddle_jax.cli.descriptions import DESCRIPTIONS
from saddle_jax.cli.helping import HelpWanted
from saddle_jax.cli.option_texts import names_of
from saddle_jax.cli.verbs import VERBS

_FILE = "completion_words.json"


def read() -> dict[str, Any]:
    """Returns what is written down: verbs with meanings and options, settings, and values by option."""
    return json.loads((importlib.resources.files("saddle_jax.cli") / _FILE).read_text(encoding="utf-8"))


def write() -> pathlib.Path:
    """Writes down what is found now, in the package's folder."""
    path = pathlib.Path(__file__).with_name(_FILE)
    with in_one_go(path) as partial:
        partial.write_text(json.dumps(find(), indent=1) + "\n", encoding="utf-8")
    return path


def find() -> dict[str, Any]:
    """Asks every verb for its options: {"verbs", "settings", "values"}; one that takes a value ends in =."""
    verbs: dict[str, Any] = {}
    values = _names()
    for name, said in DESCRIPTIONS.items():
        options = _options(name)
        verbs[name] = {"meaning": said.meaning, "options": sorted(_spelt(options)), "settings": False}
        if len([option for option in names_of(options) if option.startswith("config.")]) > 10:
            own = [option for option in verbs[name]["options"] if not option.startswith("--config.")]
            verbs[name] |= {"options": own, "settings": True}
        for option in names_of(options):
            parser: Any = options[option].parser
            if isinstance(parser, flags.EnumParser):
                values[f"--{option}"] = [*parser.enum_values]
    settings = [option for option in _spelt(_options("config")) if option.startswith("--config.")]
    return {"verbs": verbs, "settings": sorted(settings), "values": values}


def _options(name: str) -> flags.FlagValues:
    verb, *rest = name.split()
    if verb in VERBS:
        module, function = VERBS[verb]
        try:
            with contextlib.suppress(SystemExit):
                getattr(importlib.import_module(module), function)([*rest, "--help"])
        except HelpWanted as wanted:
            return wanted.options
    return flags.FlagValues()


def _spelt(options: flags.FlagValues) -> list[str]:
    return [f"--{name}" if options[name].boolean else f"--{name}=" for name in names_of(options)]


def _names() -> dict[str, list[str]]:
    """Returns the names that settings have; what is installed beside us is left out."""
    from saddle_jax.compression import COMPRESSORS
    from saddle_jax.data.sources import KNOWN
    from saddle_jax.graphs import GRAPHS
    from saddle_jax.methods import METHODS
    from saddle_jax.models import NAMES
    from saddle_jax.papers.common import SCALES
    from saddle_jax.papers.saddle.experiments import EXPERIMENTS
    from saddle_jax.papers.saddle.figures import FIGURES
    from saddle_jax.sam import GRADIENTS
    from saddle_jax.settings.config import SCHEDULES

    tables: dict[str, Any] = {
        "--config.gradient": ["auto", *GRADIENTS.ours],
        "--config.compressor": ["none", *COMPRESSORS.ours],
        "--config.dataset": KNOWN,
        "--config.method": METHODS.ours,
        "--config.model": ["auto", *NAMES],
        "--config.schedule": SCHEDULES,
        "--config.topology": GRAPHS.ours,
        "--figure": FIGURES,
        "--scale": SCALES,
        "--table": EXPERIMENTS,
    }
    return {option: [*names] for option, names in tables.items()}
