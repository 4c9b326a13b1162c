"""saddle list, evaluate, export: what can be done with runs that exist."""

import pathlib
import sys
from collections.abc import Sequence

import numpy as np
from absl import flags

from saddle_jax.base.errors import RunError
from saddle_jax.base.files import check_named_output, in_one_go
from saddle_jax.cli.usage import UsageError, data_dir_option, mistakes, parse
from saddle_jax.report.tables import as_text
from saddle_jax.training.run_folder import is_locked, read_config, read_metrics, read_result


def show_list(arguments: Sequence[str]) -> None:
    """Every run below a folder, and its state."""
    (name,) = parse(flags.FlagValues(), arguments, ["DIR"])
    folder = pathlib.Path(name)
    if not folder.is_dir():
        raise UsageError(f"DIR must be a folder, got {name!r}")
    rows = [["run", "state", "step", "accuracy %", "method", "compressor", "seed"]]
    for workdir in sorted(path.parent for path in folder.rglob("config.json")):
        label = str(workdir.relative_to(folder)) or "."
        try:
            config, result = read_config(workdir), read_result(workdir)
        except RunError as error:
            rows.append([label, f"unreadable: {error}", "", "", "", "", ""])
            continue
        metrics = read_metrics(workdir)
        state = "running" if is_locked(workdir) else result["status"] if result else "interrupted"
        accuracy = next(
            (r["test_accuracy"] for r in reversed(metrics) if r.get("test_accuracy") is not None), None
        )
        rows.append(
            [
                label,
                state,
                str(metrics[-1]["step"] if metrics else 0),
                "-" if accuracy is None else f"{100 * accuracy:.2f}",
                config.method,
                config.compressor,
                config.seeds or str(config.seed),
            ]
        )
    print(as_text(rows) if len(rows) > 1 else f"no runs below {folder}")


def evaluate(arguments: Sequence[str]) -> None:
    """Evaluates a run's newest checkpoint again."""
    options = flags.FlagValues()
    flags.DEFINE_integer(
        "agent", None, "One agent's own model; the consensus model else.", flag_values=options
    )
    flags.DEFINE_integer("replica", None, "Which run of a folder that holds several.", flag_values=options)
    data_dir_option(options)
    (name,) = parse(options, arguments, ["DIR"])

    from saddle_jax.training.reopen import choose, open_run

    with mistakes():
        problem, step, params = open_run(pathlib.Path(name), _warn, options.data_dir, options.replica)
        score = problem.evaluate(choose(params, options.agent))
    whose = "consensus model" if options.agent is None else f"agent {options.agent}"
    print(f"{whose} at step {step:,}: test accuracy {100 * score.accuracy:.2f} %, loss {score.loss:.4f}")


def export(arguments: Sequence[str]) -> None:
    """Writes a run's model as one file of named arrays."""
    options = flags.FlagValues()
    flags.DEFINE_integer(
        "agent", None, "One agent's own model; the consensus model else.", flag_values=options
    )
    flags.DEFINE_enum(
        "format", "safetensors", ["safetensors", "msgpack"], "File format.", flag_values=options
    )
    flags.DEFINE_string("output", None, "File; model.FORMAT in the run's folder else.", flag_values=options)
    flags.DEFINE_integer("replica", None, "Which run of a folder that holds several.", flag_values=options)
    data_dir_option(options)
    (name,) = parse(options, arguments, ["DIR"])

    import jax

    from saddle_jax.training.reopen import choose, open_run

    workdir = pathlib.Path(name)
    path = pathlib.Path(options.output or workdir / f"model.{options.format}")
    with mistakes():
        check_named_output(options.output)
        problem, step, params = open_run(workdir, _warn, options.data_dir, options.replica)
        model = jax.tree.map(np.asarray, choose(params, options.agent))
        if options.format == "safetensors":
            from safetensors.numpy import save

            named = {
                "/".join(str(key.key) for key in keys): leaf
                for keys, leaf in jax.tree.leaves_with_path(model)
            }
            about = {
                "model": problem.config.model,
                "dataset": problem.config.dataset,
                "step": str(step),
            }
            content = save(named, metadata=about)
        else:
            from flax.serialization import to_bytes

            content = to_bytes(model)
        with in_one_go(path) as partial:
            partial.write_bytes(content)
    print(f"{path}: step {step:,}, {sum(leaf.size for leaf in jax.tree.leaves(model)):,} parameters")


def _warn(text: str) -> None:
    print(f"saddle: {text}", file=sys.stderr)
