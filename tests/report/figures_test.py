"""The figures drawn from run folders show what the folders say."""

import dataclasses
import re

import folders
import forked
import numpy as np
import pytest
from folders import COMPRESSED, lines_of

from saddle_jax.base.errors import RunError
from saddle_jax.cli import __main__ as cli
from saddle_jax.report import figures


def models(factor):
    return folders.metrics(
        compression_error=lambda s: factor / s,
        compression_input=lambda s: factor * 5 / s,
        zeta_by_layer=lambda s: [1 - 0.01 * s, None if s == 3 else 0.5],
    )


def gradients(factor, by_layer=True):
    lists = {
        "gradient_compression_error_by_layer": lambda s: [factor * s, 3.0],
        "gradient_norm_by_layer": lambda s: [factor / s, 1.0],
        "gradient_zeta_by_layer": lambda s: [0.25, 0.75],
    }
    return folders.metrics(
        gradient_compression_error=lambda s: factor * s,
        gradient_norm=lambda s: factor + s,
        **(lists if by_layer else {}),
    )


def test_compression_of_models_is_the_mean_over_seeds_with_a_band(tmp_path, drawn):
    seeds = [
        folders.write_run(
            tmp_path / f"qgm{seed}",
            dataclasses.replace(COMPRESSED, seed=seed, keep_checkpoints=2 + seed),
            lines=models(f),
        )
        for seed, f in enumerate((1.0, 2.0))
    ]
    other = folders.write_run(
        tmp_path / "q",
        dataclasses.replace(
            COMPRESSED, method="q_saddle(compressor=quantize(8))", partition="dirichlet(0.5)"
        ),
        lines=models(0.5),
    )
    figures.draw("compression", [*seeds, other], tmp_path / "out.png")
    error, size = drawn[0].axes
    steps = np.arange(1, 9)
    found = lines_of(error)
    np.testing.assert_allclose(found["qgm(compressor=quantize(8)), auto"], 1.5 / steps)
    np.testing.assert_allclose(found["q_saddle(compressor=quantize(8)), dirichlet(0.5)"], 0.5 / steps)
    np.testing.assert_allclose(lines_of(size)["qgm(compressor=quantize(8)), auto"], 7.5 / steps)
    (band,) = error.collections  # one line has no band
    spread = np.std([1.0, 2.0], ddof=1)
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.max() == pytest.approx(1.5 + spread)
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("by_layer", [True, False])
def test_compression_of_gradients_sums_layers_or_says_that_it_cannot(tmp_path, drawn, by_layer):
    run = folders.write_run(
        tmp_path / "ngm",
        dataclasses.replace(COMPRESSED, method="ngm(compressor=sign)"),
        lines=gradients(2.0, by_layer),
    )
    figures.draw("compression", [run], tmp_path / "out.png")
    error, norm = drawn[0].axes
    steps = np.arange(1, 9)
    label = "ngm(compressor=sign)"
    if by_layer:
        np.testing.assert_allclose(lines_of(error)[label], 2.0 * steps + 3)
        np.testing.assert_allclose(lines_of(norm)[label], 2.0 / steps + 1)
        assert "sum over layers" in norm.get_ylabel()
    else:
        np.testing.assert_allclose(lines_of(error)[label], 2.0 * steps)
        np.testing.assert_allclose(lines_of(norm)[label], 2.0 + steps)
        assert "no sums recorded" in norm.get_ylabel()


def test_zeta_layer_by_epoch_and_not_recorded(tmp_path, drawn):
    run = folders.write_run(
        tmp_path / "new", COMPRESSED, lines=models(1.0), about={"layers": ["a/bias", "a/kernel"]}
    )
    old = folders.write_run(tmp_path / "old", dataclasses.replace(COMPRESSED, method="dpsgd"))
    figures.draw("zeta", [run, old], tmp_path / "out.png")
    first, second = drawn[0].axes[:2]
    (mesh,) = first.collections
    values = np.ma.filled(np.ma.asarray(mesh.get_array(), float).reshape(2, 8), np.nan)
    np.testing.assert_allclose(values[0], 1 - 0.01 * np.arange(1, 9))
    np.testing.assert_allclose(values[1], [0.5, 0.5, np.nan, 0.5, 0.5, 0.5, 0.5, 0.5])
    assert [text.get_text() for text in first.get_yticklabels()] == ["a/bias", "a/kernel"]
    assert [text.get_text() for text in second.texts] == ["not recorded"]


def test_labels_of_bits_do_not_lie_upon_each_other(tmp_path, drawn):
    runs = []
    for compressor, bits in {"quantize(8)": 9, "none": 32, "sign": 33}.items():
        config = dataclasses.replace(COMPRESSED, method=folders.with_compressor("qgm", compressor))
        end = {"bytes_sent_per_agent": bits * 8 * 2 * 100 // 8}
        runs.append(folders.write_run(tmp_path / compressor, config, result=end))
    figures.draw("bits", runs, tmp_path / "out.png")
    assert drawn[0].axes[0].get_xticks().tolist() == [9, 32]
    assert drawn[0].axes[0].containers[0].lines[0].get_xdata() == pytest.approx([9, 32, 33])


def test_bits_are_what_was_sent(tmp_path, drawn):
    """A ring of three: two neighbours, 100 parameters, 8 steps."""
    cases = {"none": (32, (0.6, 0.8)), "quantize(8)": (9, (0.5, 0.6))}
    runs = []
    for compressor, (bits, scores) in cases.items():
        for seed, score in enumerate(scores):
            config = dataclasses.replace(
                COMPRESSED, method=folders.with_compressor("qgm", compressor), seed=seed
            )
            end = {"test_accuracy": score, "bytes_sent_per_agent": bits * 8 * 2 * 100 // 8}
            runs.append(folders.write_run(tmp_path / f"{compressor}{seed}", config, result=end))
    runs.append(
        folders.write_run(
            tmp_path / "lost",
            dataclasses.replace(COMPRESSED, method="qgm(compressor=sign)"),
            status="diverged",
        )
    )
    figures.draw("bits", runs, tmp_path / "out.png")
    bits, sent = drawn[0].axes
    data = bits.containers[0].lines[0]
    assert data.get_xdata() == pytest.approx([9, 32])
    assert data.get_ydata() == pytest.approx([55, 70])
    assert sent.containers[0].lines[0].get_xdata() == pytest.approx([1800, 6400])
    bars = bits.containers[0].lines[2][0].get_segments()
    assert bars[1][1][1] - bars[1][0][1] == pytest.approx(2 * np.std([60, 80], ddof=1))
    assert "lost" in drawn[0].get_suptitle()


def test_the_radius_is_an_axis_and_methods_without_one_lines_across(tmp_path, drawn):
    runs = []
    for rho, scores in {0.05: (0.6, 0.8), 0.2: (0.5, 0.6)}.items():
        for seed, score in enumerate(scores):
            config = dataclasses.replace(folders.SMALL, method=f"q_saddle(rho={rho})", seed=seed)
            runs.append(
                folders.write_run(tmp_path / f"{rho}-{seed}", config, result={"test_accuracy": score})
            )
    base = [
        folders.write_run(tmp_path / f"base{seed}", dataclasses.replace(folders.SMALL, seed=seed), result=end)
        for seed, end in enumerate([{"test_accuracy": 0.4}, {"test_accuracy": 0.5}])
    ]
    figures.draw("rho", [*runs, *base], tmp_path / "out.png")
    (axes,) = drawn[0].axes
    data = axes.containers[0].lines[0]
    assert data.get_xdata() == pytest.approx([0.05, 0.2])
    assert data.get_ydata() == pytest.approx([70, 55])
    assert axes.lines[-1].get_ydata() == pytest.approx([45, 45])
    with pytest.raises(RunError, match="rho needs finished runs of methods with SAM"):
        figures.draw("rho", base, tmp_path / "out.png")


def test_sharpness_is_a_bar_for_each_method_over_seeds(tmp_path, drawn):
    runs = []
    for method, values in {"qgm": (90.0, 110.0), "q_saddle": (8.0, 12.0)}.items():
        for seed, value in enumerate(values):
            stages = [
                {"step": step, "epoch": epoch, "whose": whose, "lambda_max": value * factor}
                for step, epoch, whose, factor in (
                    (8, 2, "consensus", 1),
                    (4, 1, "consensus", 2),
                    (8, 2, 3, 9),
                )
            ]
            config = dataclasses.replace(folders.SMALL, method=method, seed=seed)
            folder = tmp_path / f"{method}{seed}"
            runs.append(folders.write_run(folder, config, sharpness={"stages": stages}))
    unmeasured = folders.write_run(tmp_path / "unmeasured", dataclasses.replace(folders.SMALL, seed=7))
    figures.draw("sharpness", [*runs, unmeasured], tmp_path / "out.png")
    (axes,) = drawn[0].axes
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx([200, 100, 20, 10])  # epochs 1 and 2 of QGM, then of Q-SADDLe
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2"]
    assert {text.get_text() for text in drawn[0].legends[0].get_texts()} == {"qgm", "q_saddle"}
    end = {"stages": [{"step": 8, "epoch": 2, "whose": "consensus", "lambda_max": 5.0}]}
    other = folders.write_run(
        tmp_path / "other", dataclasses.replace(folders.SMALL, method="dpsgd"), sharpness=end
    )
    figures.draw("sharpness", [*runs, other], tmp_path / "out.png")
    assert [text.get_text() for text in drawn[-1].axes[0].get_xticklabels()] == ["2"]  # which all have
    with pytest.raises(RunError, match="sharpness needs runs that `saddle sharpness` has measured"):
        figures.draw("sharpness", [unmeasured], tmp_path / "out.png")


def test_partitions_of_classes(tmp_path, drawn):
    figures.draw("partition", [folders.write_run(tmp_path / "run")], tmp_path / "out.png")
    (axes,) = drawn[0].axes
    (dots,) = axes.collections
    assert dots.get_offsets().tolist() == [[0, 0], [1, 1], [2, 0], [2, 1]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "dog"]
    areas = dots.get_sizes()
    assert areas / areas.max() == pytest.approx([1, 1, 0.5, 0.5])

    other = folders.write_run(tmp_path / "other", about={"partition": {"fingerprint": "none"}})
    with pytest.raises(RunError, match="other has no classes whose allocation could be drawn"):
        figures.draw("partition", [other], tmp_path / "new.png")


def test_letters_of_a_pdf_are_truetype(tmp_path):
    """Submission checks refuse Type 3, which is what matplotlib embeds unless it is told otherwise."""
    figures.draw("curves", [folders.write_run(tmp_path / "one")], tmp_path / "out.pdf")
    written = (tmp_path / "out.pdf").read_bytes()
    assert b"/TrueType" in written or b"/CIDFontType2" in written
    assert b"/Type3" not in written


def test_a_folder_of_runs_stands_for_all_of_them(tmp_path, drawn):
    for name in ("dpsgd", "qgm"):
        folders.write_run(tmp_path / "both" / name, dataclasses.replace(COMPRESSED, method=name))
    picture = f"--output={tmp_path / 'curves.png'}"
    assert cli.main(["saddle", "figure", "curves", str(tmp_path / "both"), picture]) == 0
    assert {*lines_of(drawn[0].axes[0])} == {"dpsgd", "qgm"}


def test_the_verb_and_its_mistakes(tmp_path, capsys):
    run = folders.write_run(tmp_path / "run")
    assert cli.main(["saddle", "figure", "curves", str(run), f"--output={tmp_path / 'c.png'}"]) == 0
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert cli.main(["saddle", "figure", "--help"]) == 0
    assert {*re.findall(r"\w+", capsys.readouterr().out)} >= {*figures.KINDS}
    mistakes = {
        (
            "fly",
            run,
        ): "KIND must be one of compression, zeta, bits, rho, sharpness, partition, curves, got 'fly'",
        ("curve", run): "did you mean 'curves'? KIND must be one of",
        ("zeta",): "arguments must be KIND DIR... and options, got zeta",
        ("zeta", tmp_path / "nothing"): "holds no run",
        ("compression", run): "compression needs compressed runs with --diagnostics=true, got run",
        ("curves", run, "--x=hour"): "bytes, paper_bytes, passes, seconds, for curves, got 'hour'",
        ("zeta", run, "--x=step"): "got 'step' for zeta",
        ("zeta", run, "--paper"): "paper must be for curves, got it for zeta",
        ("curves", run, "--paper"): "need runs that reproduce one, got run",
        ("curves", run, "--x=seconds"): "curves against seconds need runs with --timing",
        ("curves", run, "--output=x.gif"): "output must end in .png, .pdf or .svg, got 'x.gif'",
        ("curves", run, "--output=/nowhere/x.png"): "output must be a file that can be written",
    }
    for arguments, said in mistakes.items():
        assert cli.main(["saddle", "figure", *map(str, arguments)]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    unfinished = folders.write_run(tmp_path / "unfinished", status=None)
    assert cli.main(["saddle", "figure", "bits", str(unfinished), f"--output={tmp_path / 'b.png'}"]) == 2
    assert "bits needs finished runs" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"run", "unfinished", "c.png"}


def test_a_backend_that_is_not_installed_is_not_needed(tmp_path):
    """Jupyter sets MPLBACKEND for commands, too; a program keeps the backend that it asked for."""
    run = folders.write_run(tmp_path / "run")
    program = (
        "import os, sys; from saddle_jax.cli import __main__ as cli; "
        "status = cli.main(['saddle', 'figure', 'curves', *sys.argv[1:]]); "
        "import matplotlib; print(os.environ['MPLBACKEND'], matplotlib.rcParams._get_backend_or_none()); "
        "sys.exit(status)"
    )
    backends = {"svg": "svg", "module://matplotlib_inline.backend_inline": None}
    for name, kept in backends.items():
        done = forked.run(run, f"--output={run / 'curves.png'}", program=program, MPLBACKEND=name)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1].startswith(f"{name} {kept or ''}")
        assert (run / "curves.png").stat().st_size > 1000
        (run / "curves.png").unlink()
