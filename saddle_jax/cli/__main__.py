"""Finds the verb, runs it, and tells a user's mistake in one line."""

import importlib
import os
import sys
from collections.abc import Sequence

# Nothing that takes time is imported here: until `run` listens, Python answers Ctrl-C with a traceback.
import saddle_jax.training.interruption as interruption
from saddle_jax.cli import clock as clock  # looks at the time
from saddle_jax.version import __version__

# Each verb is a function of a module that is imported when it is used; it may return the exit status.
VERBS = {
    "train": ("saddle_jax.cli.train", "run"),
    "config": ("saddle_jax.cli.train", "show_config"),
    "reproduce": ("saddle_jax.cli.reproduce", "run"),
    "compare": ("saddle_jax.cli.compare", "run"),
    "list": ("saddle_jax.cli.runs", "show_list"),
    "evaluate": ("saddle_jax.cli.runs", "evaluate"),
    "export": ("saddle_jax.cli.runs", "export"),
    "report": ("saddle_jax.cli.report", "run"),
    "figure": ("saddle_jax.cli.report", "figure"),
    "sharpness": ("saddle_jax.cli.sharpness", "run"),
    "landscape": ("saddle_jax.cli.landscape", "run"),
    "cost": ("saddle_jax.cli.cost", "run"),
    "theory": ("saddle_jax.cli.theory", "run"),
    "bench": ("saddle_jax.cli.bench", "run"),
    "data": ("saddle_jax.cli.data", "run"),
    "topology": ("saddle_jax.cli.topology", "run"),
}

HELP = """usage: saddle VERB ...        (saddle VERB --help tells its options)

  train                     train; --config=FILE.py[:VARIANT], --config.FIELD=VALUE, --workdir=DIR;
                            several runs in one program: --config.seeds=0,1,2 --sweep=learning_rate:0.05,0.1
  config                    every setting, its value and its meaning
  compare                   --methods=qgm,q_saddle --compressors=none,quantize8 --seeds=0,1,2 --workdir=DIR
  reproduce                 a table of the paper beside ours; --table=1 --scale=cpu --workdir=DIR, or --list
  list DIR                  runs and their state
  evaluate DIR              evaluate a run's newest checkpoint again; --agent=3 for one agent's, --replica=1
  export DIR                the consensus model as safetensors or msgpack
  report DIR...             one HTML page of a run, or of several side by side; --output=FILE.html
  figure KIND DIR...        compression, zeta, bits, partition or curves of runs; --output=FILE.png
  sharpness DIR...          the Hessian's largest eigenvalue at a run's checkpoints; several runs: a picture
  landscape DIR...          the loss around the consensus models of runs, as pictures and a page
  cost                      the paper's communication costs, derived, beside exact bytes; --table=1, --json
  theory [DIR]              the convergence theorem: terms, conditions, --testbed; or what a run keeps of it
  bench [CASE ...]          speed as ratios, against PyTorch or a copy; --list, --quick, --json=FILE
  bench input               what gathering and augmenting images costs beside a step
  data list                 which datasets there are, and where
  data prepare NAME         download and prepare one (needs internet and TensorFlow)
  data show NAME            counts, shapes and a contact sheet
  data partition            who would hold what, and a picture of it
  topology NAME AGENTS      what a graph is like, such as: topology torus:5x8 40
  version                   which saddle_jax this is
"""


def main(argv: Sequence[str]) -> int:
    """Runs the verb that argv[1] names; returns the exit status."""
    from saddle_jax.cli.usage import UsageError, missing_extras

    verb, *arguments = [*argv[1:]] or [""]
    try:
        if verb in ("-h", "--help", "help"):
            print(HELP, end="")
        elif verb in ("version", "--version"):
            print(__version__)
        elif verb in VERBS:
            module, function = VERBS[verb]
            with missing_extras(verb):
                return getattr(importlib.import_module(module), function)(arguments) or 0
        else:
            raise UsageError(f"VERB must be one of {', '.join(VERBS)}, version, help, got {verb!r}")
    except UsageError as error:
        if interruption.is_raised():  # it is what a library made of the interruption
            return _tell_interrupted()
        print(f"saddle: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read us, such as head, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return _tell_interrupted()
    except Exception:
        if not interruption.is_raised():
            raise
        return _tell_interrupted()
    return 0


def _tell_interrupted() -> int:
    interruption.tell("saddle: interrupted")
    return interruption.STATUS


def run() -> None:
    """The console script."""
    interruption.listen()

    from saddle_jax.devices.cores import use_every_core
    from saddle_jax.devices.malloc import keep_freed_memory

    keep_freed_memory()
    use_every_core()
    interruption.in_verb()
    interruption.leave(main(sys.argv))


if __name__ == "__main__":
    run()
