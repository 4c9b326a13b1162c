"""Verbs of the paper: demo, reproduce, and its costs and theory."""

import contextlib
import dataclasses
import pathlib
import shlex
import textwrap
from collections.abc import Sequence
from typing import Any

from absl import flags

from saddle_jax.base.checks import ArgumentError
from saddle_jax.cli.analysis import draw_landscape, measure
from saddle_jax.cli.train import run_several
from saddle_jax.cli.verb import (
    OPENING,
    Output,
    boolean,
    call,
    choice,
    doing,
    integer,
    items,
    names_of,
    number,
    refuse,
    text,
    verb,
)
from saddle_jax.papers import INTERPRETATIONS, PAPERS
from saddle_jax.training import signals

_THEME = "The paper"
# The embedded digits show the effect with these: docs/first_comparison.md tells how they were found.
DEMO: dict[str, Any] = {"partition": "dirichlet(0.001)", "learning_rate": 0.3}
DEMO_OPTIONS = {"method.rho": 0.2}
_IMAGES, _ITERATIONS = 256, 20  # of sharpness
_POINTS = 11


@verb(
    "Begin",
    text("workdir", "runs/demo", "Folder of the runs and the page."),
    text("seeds", "0,1,2,3,4", "Seeds of each method."),
)
def demo(options: flags.FlagValues, out: Output) -> int:
    """Show the paper's point in about 90 seconds: two methods, their curves and sharpness."""
    from saddle_jax.analysis import landscape
    from saddle_jax.analysis.sharpness import Measurement
    from saddle_jax.papers.saddle import demonstration
    from saddle_jax.report.comparisons import cells_of
    from saddle_jax.report.figures import plot_curves
    from saddle_jax.report.page import write_page
    from saddle_jax.runs.table import load_runs
    from saddle_jax.settings.settings import Settings
    from saddle_jax.settings.sweep import parse_seeds
    from saddle_jax.training.progress import Screen
    from saddle_jax.training.sweep import over_seeds, runs_of_sweep

    folder = pathlib.Path(options.workdir)
    axes = {"method": [demonstration.BASE, demonstration.SADDLE]}
    seeds = parse_seeds(options.seeds)
    found = runs_of_sweep(Settings(**DEMO), axes, folder, fixed=DEMO_OPTIONS)
    runs = over_seeds(found, seeds, single_program=True).runs
    out.note(demonstration.introduction())
    out.note(f"\n1 of 3: training QGM and Q-SADDLe, {len(seeds)} seeds each")
    refused, status = run_several(runs, quiet=out.is_silent, lines=False)
    if status or refused:
        return status
    workdirs, page = list(runs), folder / "report.html"
    with contextlib.closing(Screen(out.is_silent, lines=False)) as screen:
        out.note("2 of 3: measuring how sharp the loss is around the models they found")
        sharp = measure(
            workdirs,
            Measurement(images=_IMAGES, iterations=_ITERATIONS),
            screen,
            epochs=[str(Settings().epochs)],
        )
        out.note("3 of 3: computing the loss landscape, and writing the page")
        pair = [
            next(path for path in runs if path.name.startswith(f"method={method}"))
            for method in axes["method"]
        ]
        x, scan = landscape.grid(_POINTS, 1.0), landscape.Scan("filter", 0, _IMAGES)
        draw_landscape(pair, folder / "landscape", x, scan, screen, 0)
        plot_curves(workdirs, folder / "comparison.png")
        write_page(workdirs, page)
        shown = demonstration.shown(cells_of(load_runs(workdirs), axes, DEMO_OPTIONS), sharp)
    out.note()
    out.table(demonstration.rows(shown))
    out.say(f"\n{demonstration.meaning(shown)}")
    out.note(f"\nopen {page}\nopen {folder / 'landscape' / 'landscape.html'}  (turn it with the mouse)")
    out.give({**demonstration.record(shown), "folder": str(folder), "page": str(page)})
    return 0


@verb(
    _THEME,
    choice(
        "paper", "saddle", ("saddle", *PAPERS), "Paper; all but saddle need no data, and minutes at most."
    ),
    text("table", None, "Table to make, by name or number; see --list."),
    text("figure", None, "Figure to draw, by name or number; see --list."),
    items("rows", [], "Parts of the names of rows, * and ? included (default: all rows)."),
    text("scale", "cpu", "Size of the runs: full, long, study, cpu or smoke; --list explains them."),
    integer("seeds", 3, "Number of seeds, from 0 on.", 1),
    text("workdir", None, "Folder of all runs and tables; --plan needs none."),
    text("data_dir", "", "Folder of prepared datasets."),
    boolean("plan", False, "Print what would run and for how long, and stop."),
    boolean("list", False, "List the tables, figures and scales, or the rows of one table."),
    boolean("claims", False, "Print what the text claims of the tables, beside the tables and the runs."),
    boolean("evidence", False, "Print what the runs below --workdir say of the paper's statements."),
    choice("order", None, ("choco", "paper"), "Read otherwise: the order of compressed gossip."),
    boolean("nesterov", None, "Read otherwise: Nesterov momentum, or heavy ball."),
    choice("self_gradient", None, ("current", "mixed"), "Read otherwise: where NGM takes its own gradient."),
    boolean("ascent_reuse", None, "Read otherwise: the last perturbation between."),
    choice("norm", None, ("evonorm", "evonorm_sigmoid", "groupnorm"), "Read otherwise: normalization."),
    boolean("biased", None, "Whether quantizers are divided by tau (default: as each row's name says)."),
    example="reproduce --table=1 --scale=smoke --workdir=runs/paper",
)
def reproduce(options: flags.FlagValues, out: Output) -> int:
    """Compute a table or a figure of a paper, and compare it with the published one."""
    if options.list and options.table is None:
        return _list_all(out)
    if options.paper != "saddle":
        return _paper(options, out)
    for name, action in (("claims", _claims), ("evidence", _evidence)):
        if options[name].value:
            if options.table or options.figure or options.rows or _interpretations(options):
                raise ArgumentError(f"{name} must stand alone: it is about all tables")
            return action(options, out)
    return _figure(options) if options.figure is not None else _table(options, out)


# The options that mean something for papers other than SADDLe.
_OF_ALL = ("paper", "workdir", "quiet", "json")


def _paper(options: flags.FlagValues, out: Output) -> int:
    """Computes the published values of a paper; with --workdir also writes the table and a picture."""
    from saddle_jax.papers.common import compared_rows, paper_of, plot_compared
    from saddle_jax.report.tables import write_all

    others = [name for name in names_of(options) if name not in _OF_ALL]
    refuse(options, others, "be given with --paper=saddle alone")
    paper = paper_of(options.paper)
    caption = f"{paper.title}: {paper.source}"
    out.note(f"{caption}\n")
    with doing("computing ..."):
        results = paper.results()
    rows, files = compared_rows(results), []
    out.table(rows)
    if paper.notes:
        out.note(f"\n{textwrap.fill(paper.notes, 80)}")
    if options.workdir:
        folder = pathlib.Path(options.workdir)
        folder.mkdir(parents=True, exist_ok=True)
        files = [*write_all(rows, folder, options.paper, caption), folder / f"{options.paper}.png"]
        plot_compared(results, caption, files[-1])
        _written(out, files)
    compared = [{**one._asdict(), "verdict": one.verdict} for one in results]
    out.give({**paper._asdict(), "results": compared, "files": [str(path) for path in files]})
    return 0


def _written(out: Output, files: Sequence[pathlib.Path]) -> None:
    out.note(f"\nwritten: {', '.join(path.name for path in files)} in {files[0].parent}")


def _list_all(out: Output) -> int:
    from saddle_jax.papers.common import paper_of
    from saddle_jax.papers.runs import scale_rows, table_rows
    from saddle_jax.papers.saddle.experiments import PAPER
    from saddle_jax.papers.saddle.figures import figure_rows
    from saddle_jax.report.tables import as_records

    found = {
        "papers": [["paper", "what"], *([name, paper_of(name).title] for name in PAPERS)],
        "tables": table_rows(PAPER),
        "figures": figure_rows(),
        "scales": scale_rows(),
    }
    for rows in found.values():
        out.table(rows)
        out.say()
    out.give({name: as_records(rows, ("table", "figure", "number")) for name, rows in found.items()})
    return 0


def _place(options: flags.FlagValues) -> tuple[Any, pathlib.Path]:
    """Returns the scale and the folder from the options; with --plan the folder need not exist."""
    from saddle_jax.papers.tables import SCALES

    if options.scale not in SCALES:
        raise ArgumentError(f"scale must be one of {', '.join(SCALES)}, got {options.scale!r}")
    if not options.workdir and not options.plan:
        raise ArgumentError("workdir must be given: --workdir=DIR, one folder for all runs")
    return SCALES[options.scale], pathlib.Path(options.workdir or "DIR")


def _interpretations(options: flags.FlagValues) -> dict[str, Any]:
    """Returns the interpretations of the paper that the options select."""
    return {name: options[name].value for name in INTERPRETATIONS if options[name].value is not None}


def _planned(options: flags.FlagValues, entries: Sequence[Any], seeds: int) -> list[Any]:
    """Returns the runs of entries, made and missing."""
    from saddle_jax.papers.runs import plan

    scale, folder = _place(options)
    return plan(entries, scale, seeds, folder, options.data_dir, _interpretations(options))


def _make_runs(
    options: flags.FlagValues, out: Output, table: str, entries: Sequence[Any], seeds: int
) -> tuple[list[Any], int]:
    """Plans the missing runs and, without --plan, trains them; returns all runs and the exit status."""
    from saddle_jax.papers.saddle.experiments import EXPERIMENTS
    from saddle_jax.papers.tables import written

    scale, _ = _place(options)
    runs = _planned(options, entries, seeds)
    missing = [run for run in runs if run.is_missing]
    out.note(f"table {table}: {EXPERIMENTS[table].title}\nscale {scale.name}: {scale.meaning}")
    if otherwise := written(_interpretations(options)):
        out.note(f"read otherwise, where it means something: {', '.join(otherwise)}")
    if options.plan or (missing and not out.is_silent):
        _show_plan(out, missing, options.plan)
    out.note(f"{len(runs)} runs, {len(runs) - len(missing)} of them made already")
    if options.plan:
        return runs, 0
    refused, status = run_several({run.workdir: run.config for run in missing}, quiet=out.is_silent)
    if status == signals.STATUS:
        return [], status
    made = [run for run in runs if run.workdir not in refused]
    for planned in made:
        planned.note_paper(table, scale)
    return made, status


def _show_plan(out: Output, missing: Sequence[Any], alone: bool) -> None:
    """Prints the remaining runs and their estimated time; as JSON only if nothing else is printed."""
    from saddle_jax.papers.runs import HOW, duration, plan_rows, remaining

    with doing("counting what the runs compute and send ..."):
        left = remaining(missing, at_once=not alone)
    total = sum(row.seconds for row in left)
    if left:
        out.note()
        out.table(plan_rows(left), spare=("sends per agent",))
        out.say(f"\nabout {duration(total)} on this machine, compilation apart\n{textwrap.fill(HOW, 80)}\n")
    if alone:
        rows = [
            {"row": row.name, "runs": row.runs, "seconds": row.seconds, **dataclasses.asdict(row.size)}
            for row in left
        ]
        out.give({"estimate": HOW, "seconds": total, "rows": rows})


def _table(options: flags.FlagValues, out: Output) -> int:
    """Lists the rows of a table, or trains its runs and shows them beside the paper's."""
    from saddle_jax.papers.evidence import write_results
    from saddle_jax.papers.saddle.experiments import PAPER
    from saddle_jax.papers.tables import written
    from saddle_jax.report.tables import as_records

    table, entries = PAPER.table_name(options.table), PAPER.choose(options.table, options.rows)
    if options.list:
        rows = [["row", "paper"], *([entry.name, str(entry.printed or "-")] for entry in entries)]
        out.table(rows)
        out.give(as_records(rows))
        return 0
    made, status = _make_runs(options, out, table, entries, options.seeds)
    if not made or options.plan:
        return status
    scale, folder = _place(options)
    bases = _planned(options, PAPER.compared_with(table, entries), options.seeds)
    otherwise = written(_interpretations(options))
    found = write_results(PAPER, table, options.seeds, made, bases, scale, folder, otherwise)
    texts = ("dataset", "graph", "method", "compressor", "scale")
    out.note(f"\n{found.caption}\n")
    out.table(found.rows, spare=("scale", "95 % interval", "graph"))
    if found.differences:
        out.note("\nDifferences in percentage points; ours over the same seeds, with 95 % intervals\n")
        out.table(found.differences, spare=("seeds",))
    if found.hint:
        out.note(f"\n{found.hint}")
    _written(out, found.files)
    out.give(
        {
            "caption": found.caption,
            "rows": as_records(found.numbers, texts),
            "differences": as_records(found.differences, texts) if found.differences else [],
            "files": [str(path) for path in found.files],
        }
    )
    return status


def _figure(options: flags.FlagValues) -> int:
    """Trains the runs of a figure, then calls the verbs that draw it."""
    from saddle_jax.papers.saddle import figures
    from saddle_jax.papers.tables import written
    from saddle_jax.runs.run_name import safe

    name = figures.named_figure(options.figure)
    if options.table is not None or options.rows:
        raise ArgumentError("figure must stand alone: it names its own table and rows")
    if options.json:
        raise ArgumentError("json must not be given with --figure, whose pictures other verbs draw")
    figure = figures.FIGURES[name]
    scale, folder = _place(options)
    workdirs: list[str] = []
    epochs: list[int] = []
    if figure.table is not None:
        seeds = 1 if figure.one_seed else options.seeds
        runs, status = _make_runs(options, Output(options), figure.table, figure.entries(), seeds)
        if not runs or status:
            return status
        workdirs, epochs = [str(run.workdir) for run in runs], figures.three_stages(runs[0].config)
    if not options.plan:
        folder.mkdir(parents=True, exist_ok=True)
    readings = "".join(f"-{safe(text)}" for text in written(_interpretations(options)))
    output = str(folder / f"figure-{name}-{scale.name}{readings}")
    for picture in figure.pictures:
        verb, arguments = figures.command_of(picture, output, epochs, scale.images)
        words = [verb, *arguments, *workdirs]
        if options.data_dir and verb in figures.READS_DATA:
            words.append(f"--data_dir={options.data_dir}")
        print(f"\nsaddle {shlex.join(words)}", flush=True)
        if not options.plan:
            call(words)
    return 0


def _claims(options: flags.FlagValues, out: Output) -> int:
    """Prints the paper's claims; with --workdir also our values from the runs there, and writes both."""
    from saddle_jax.papers.evidence import claim_rows, means_below
    from saddle_jax.papers.saddle.claims import CLAIMS
    from saddle_jax.papers.saddle.costs import ratio_rows
    from saddle_jax.papers.saddle.experiments import PAPER
    from saddle_jax.report.tables import as_records, write_all

    place = _place(options) if options.workdir else None
    ours = means_below(PAPER, place[1], place[0]) if place else None
    rows, cheaper = claim_rows(CLAIMS, ours), ratio_rows()
    out.table(rows, spare=("differences", "of them"))
    out.say()
    out.table(cheaper)
    if place:
        scale, folder = place
        caption = f"What the paper's text claims, in percentage points. Scale {scale.name}: {scale.meaning}"
        _written(out, write_all(rows, folder, f"claims-{scale.name}", caption))
    out.give({"claims": as_records(rows, ("stated",)), "ratios": as_records(cheaper)})
    return 0


def _evidence(options: flags.FlagValues, out: Output) -> int:
    """Tests each statement on the runs below --workdir; prints a table, and writes it with a picture."""
    from saddle_jax.papers import evidence
    from saddle_jax.papers.saddle.claims import STATEMENTS
    from saddle_jax.papers.saddle.experiments import PAPER
    from saddle_jax.report.tables import as_records, write_all

    scale, folder = _place(options)
    name, tables, found = evidence.statement_tables(PAPER, STATEMENTS, folder, scale)
    for rows in tables.values():
        out.table(rows, spare=("graph", "dataset", "seeds", "p", "p of all"))
        out.say()
    caption = (
        "Differences over the same seeds with 95 % intervals, in percentage points of accuracy or in %. "
        f"Scale {scale.name}: {scale.meaning}"
    )
    paths = [path for table, rows in tables.items() for path in write_all(rows, folder, table, caption)]
    if evidence.plot_findings(found, folder / f"{name}.png"):
        paths.append(folder / f"{name}.png")
    _written(out, paths)
    out.give({table: as_records(rows) for table, rows in tables.items()})
    return 0


@verb(_THEME, text("table", None, "Table of the paper, such as 1 (default: all)."))
def reproduce_costs(options: flags.FlagValues, out: Output) -> None:
    """Derive the paper's communication costs and show them beside exact bytes."""
    from saddle_jax.papers.saddle.costs import PRINTED, costs

    if options.table not in (None, *PRINTED):
        raise ArgumentError(f"table must be one of {', '.join(PRINTED)}, got {options.table!r}")
    figures = list(costs(options.table))
    rows = [["table", "agents", "dataset", "method", "compressor", "paper GB", "derived GB", "wire GB"]]
    for c in figures:
        gigabytes = (f"{c.paper_gb:.2f}", f"{c.derived_gb:.2f}", f"{c.wire_gb:.4f}")
        rows.append([c.table, str(c.agents), c.dataset, c.method, c.compressor, *gigabytes])
    out.table(rows, spare=("wire GB",))
    equal = sum(c.paper_gb == c.derived_gb for c in figures)
    out.note(
        f"\n{equal} of {len(figures)} printed figures derived exactly; the SADDLe versions cost the same"
    )
    out.give([dataclasses.asdict(cost) for cost in figures])


_CONSTANTS = {
    "L": (1.0, "Smoothness of every agent's loss."),
    "sigma": (1.0, "Sampling noise of a gradient."),
    "delta": (0.5, "Spread of the agents' gradients."),
    "rho": (0.01, "SAM's radius."),
    "beta": (0.0, "Momentum."),
    "mu": (None, "Moving average of the momentum (default: beta)."),
    "eta": (None, "Learning rate (default: the largest that theorem and proof allow)."),
    "gap": (1.0, "Loss at the start above the least loss, f(x0) - f*."),
}
_OF_CONSTANTS = [*_CONSTANTS, "agents", "topology", "steps", "testbed"]


@verb(
    _THEME,
    "[DIR]",
    *(number(name, default, meaning) for name, (default, meaning) in _CONSTANTS.items()),
    integer("agents", 8, "Number of agents, n."),
    text("topology", "ring", "The graph."),
    integer("steps", 2000, "Number of steps, T."),
    boolean("testbed", False, "Run Q-SADDLe on quadratics: the error, and how it falls with n."),
    boolean("corollary", False, "Run it on several graphs, over n and T: the corollary's slopes (minutes)."),
    text("workdir", None, "Folder in which --testbed and --corollary write their pictures."),
    integer("samples", 256, "Samples per agent to measure a run with; 0: all of them."),
    integer("trial", None, "Which run of a folder with several."),
    *OPENING,
)
def reproduce_theory(options: flags.FlagValues, out: Output, name: str = "") -> None:
    """Evaluate the convergence theorem for constants, on a test-bed, or for a run."""
    of_constants = [*_OF_CONSTANTS, "corollary", "workdir"]
    if name:
        refuse(options, of_constants, "not be given with DIR")
    else:
        refuse(options, ("samples", "trial", "data_dir", "code"), "be given with a run, DIR")
    if options.workdir and not (options.testbed or options.corollary):
        raise ArgumentError("workdir must be given with --testbed or --corollary, which draw pictures")
    if options.corollary:
        refuse(options, _OF_CONSTANTS, "not be given with --corollary, which has constants of its own")
    folder = pathlib.Path(options.workdir) if options.workdir else None
    if folder:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArgumentError(f"workdir must be a folder that can be written to, got {folder}") from error
    if options.corollary:
        out.give(_corollary(folder, out))
    elif name:
        out.give(_theory_of_run(name, options, out))
    else:
        out.give(_theory_of_constants(folder, options, out))


def _theory_of_run(name: str, options: flags.FlagValues, out: Output) -> dict[str, Any]:
    from saddle_jax.papers.saddle.theory import measured, texts
    from saddle_jax.training.progress import Screen

    given = (options.samples, options.data_dir, Screen(quiet=out.is_silent), options.code, options.trial)
    run = measured.measure_run(pathlib.Path(name), *given)
    out.say(texts.describe_run(run, name))
    return texts.run_record(run)


def _theory_of_constants(
    folder: pathlib.Path | None, options: flags.FlagValues, out: Output
) -> dict[str, Any]:
    """Evaluates the bound; with --testbed also runs the method with these constants, and over n."""
    from saddle_jax.papers.saddle.theory import bound, testbed, texts
    from saddle_jax.settings.settings import Settings, build_topology

    topology = build_topology(Settings(topology=options.topology, agents=options.agents))
    constants: dict[str, Any] = {name: options[name].value for name in (*_CONSTANTS, "steps")}
    setting = bound.on_graph(topology, **constants)
    out.say(texts.describe_setting(setting, f"Theorem 1 on {topology.name}"))
    if not options.testbed:
        return texts.setting_record(setting)
    measured = testbed.measure_setting(topology, setting)
    out.say(texts.describe_measured(measured, setting))
    out.note("the corollary's schedule on complete graphs (a minute or less)")
    points = testbed.sweep()
    slope = testbed.fit_slope(points)
    out.table(texts.point_rows(points))
    out.say(texts.describe_slope(slope))
    if folder:
        texts.plot_speedup(points, slope, folder / "theory.png")
        out.note(f"picture: {folder / 'theory.png'}")
    return texts.setting_record(setting) | texts.testbed_record(measured, points, slope)


def _corollary(folder: pathlib.Path | None, out: Output) -> dict[str, Any]:
    """Measures and draws the corollary's slopes by graph and momentum."""
    from saddle_jax.papers.saddle.theory import testbed, texts

    out.note("Q-SADDLe on quadratics under the corollary's schedule, whose slopes are -1/2")
    cases = testbed.measure_cases(report=lambda case: out.note(f"measured: {case.graph}, beta {case.beta:g}"))
    out.note()
    out.table(texts.case_rows(cases))
    if folder:
        texts.plot_cases(cases, folder / "corollary.png")
        out.note(f"picture: {folder / 'corollary.png'}")
    return texts.corollary_record(cases)
