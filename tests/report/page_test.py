"""The page of `saddle report`: its content always, its behaviour in a headless browser where one is found."""

import csv
import io
import json
import math
import re

import folders
import numpy as np
import pytest
from browser import Tree, browse, needs_browser

from saddle_jax.cli import __main__ as cli
from saddle_jax.runs import run_folder
from saddle_jax.settings.settings import Settings
from saddle_jax.version import RUN_FORMAT


def data_of(path):
    ((_, text),) = Tree(path.read_text()).find("script", id="data")
    return json.loads(text)


def refused(capsys, *arguments):
    """The one line that a mistake is told in."""
    assert cli.main(["saddle", *map(str, arguments)]) in (2, 3)
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


# ---- Content


def test_curves_can_be_drawn_against_simulated_time(tmp_path):
    lines = [{**line, "simulated_seconds": 0.5 * line["step"]} for line in folders.metrics()]
    about, end = {"passes_per_step": 2.0}, {"simulated_seconds": 4.0}
    run = folders.write_run(tmp_path / "run", lines=lines, about=about, result=end)
    page = folders.make_page(tmp_path, run)
    data = data_of(page)
    steps = np.array(data["runs"][0]["columns"]["step"])
    assert data["runs"][0]["columns"]["simulated_seconds"] == (0.5 * steps).tolist()
    assert data["runs"][0]["columns"]["backward_passes"] == (2.0 * steps).tolist()
    axes = {"simulated_seconds", "backward_passes", "bytes_sent_per_agent", "step", "epoch"}
    assert not axes & {panel["key"] for panel in data["panels"]}  # they are axes, not curves
    assert axes <= {key for key, _ in data["axes"]}
    text = page.read_text()
    assert '<th scope="col" class="number">simulated seconds</th>' in text
    assert '<td class="number" data-value="4">4</td>' in text


def test_every_number_of_a_run_is_in_the_page(tmp_path):
    run = folders.write_run(
        tmp_path / "run", lines=folders.metrics(gradient_norm_by_layer=lambda s: [s, 2.5])
    )
    page = folders.make_page(tmp_path, run)
    columns = data_of(page)["runs"][0]["columns"]
    lines = run_folder.read_metrics(run)
    for name in {name for line in lines for name in line} - {"bytes_sent_per_agent"}:
        assert columns[name] == [line.get(name) for line in lines]
    assert columns["bytes_sent_per_agent"] == [1000 * line["step"] for line in lines]  # evaluations too
    assert columns["paper_bytes_sent_per_agent"] == [800 * line["step"] for line in lines]
    text = page.read_text()
    assert "62.50 %" in text
    assert "simulated seconds</th>" not in text
    assert "8.00 kB" in text
    assert "6.40 kB" in text
    assert "spectral gap 1.0000" in text
    assert "agent 2, dog: 2" in text
    assert "agent 1: 62.50 %" in text
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", text)  # nothing is fetched
    assert "@import" not in text


def test_comparisons_say_what_is_common_and_what_differs(tmp_path):
    other = Settings(agents=3, model="mlp", method="q_saddle", epochs=2, seed=1, learning_rate=7 * 0.1)
    same = Settings(agents=3, model="mlp", method="qgm", epochs=2, seed=1)
    paper = {"table": "1", "row": "QGM, ring", "paper": "77.41 +- 8.00", "scale": "cpu: small"}
    runs = [
        folders.write_run(tmp_path / "one", paper=paper),
        folders.write_run(tmp_path / "two", other),
        folders.write_run(tmp_path / "three", same, result={"test_accuracy": 0.5}),
    ]
    text = folders.make_page(tmp_path, *runs).read_text()
    assert "0.7000" not in text  # 7 * 0.1 is 0.7000000000000001
    tree = Tree(text)
    tables = {found["data-csv"]: text for found, text in tree.find("table")}
    assert "methodlearning_rateseed" in tables["settings-differing"]
    assert "twoq_saddle0.71" in tables["settings-differing"]
    assert "method" not in tables["settings"]
    assert "batch_size32" in tables["settings"]
    assert "62.50 %77.41 +- 8.00" in tables["results"]
    assert "Table 1, QGM, ringcpu: small" in tables["results"]
    mean, spread = np.mean([62.5, 50.0]), np.std([62.5, 50.0], ddof=1)
    assert f"qgm0.12accuracy{mean:.2f} %{spread:.2f} %" in tables["seeds"]
    assert "q_saddle" not in tables["seeds"]  # one seed has no mean


@pytest.mark.parametrize(
    ("status", "result", "said"),
    [
        (None, {}, "did not come to its end: it stopped at step 8 of 8"),
        ("interrupted", {"steps": 5}, "was interrupted at step 5 of 8"),
        (
            "diverged",
            {"diverged_at_step": 7, "last_finite": {"step": 6, "train_loss": 1.5}},
            "diverged at step 7: not all numbers were",
        ),
    ],
)
def test_a_run_that_did_not_finish_says_so_first(tmp_path, status, result, said):
    ends = dict.fromkeys(("test_accuracy", "test_loss", "agent_accuracy_each"))
    lines = folders.metrics()
    lines[-1]["train_loss"] = None  # what was not finite
    run = folders.write_run(tmp_path / "run", status=status, lines=lines, result=ends | result)
    assert said in folders.make_page(tmp_path, run).read_text()
    with run_folder.locked(run):
        assert "is still running" in folders.make_page(tmp_path, run).read_text()


def test_folders_without_later_records_and_without_metrics(tmp_path):
    about = {"partition": {"name": "iid", "fingerprint": "f00d"}, "dataset": {"source": "here"}}
    run = folders.write_run(tmp_path / "old", about=about, lines=[], status=None)
    tree = Tree(folders.make_page(tmp_path, run).read_text())
    shown = [found["id"] for found, _ in tree.find("section")]
    assert shown == ["results", "traffic", "graph", "settings", "more"]  # the others have nothing to show
    links = [found["href"] for found, _ in tree.find("a") if found["href"] != "#main"]
    assert links == [f"#{name}" for name in shown]
    ((_, more),) = tree.find("section", id="more")
    for command in ("saddle sharpness DIR", "saddle landscape DIR", "--eval_agents=always"):
        assert command in more


def test_damage_is_one_line_and_nothing_is_written(tmp_path, capsys):
    run = folders.write_run(tmp_path / "run")
    assert "holds no run: config.json is missing" in refused(capsys, "report", tmp_path / "nowhere")
    assert "DIR must not be given twice" in refused(capsys, "report", run, run)
    assert "arguments must be DIR... and options, got nothing" in refused(capsys, "report")
    assert "output must be a file" in refused(capsys, "report", run, "--output=/nowhere/x.html")
    damages = {
        "metrics.jsonl": ('{"step": 1, "epoch": 1, "train_loss": "<b>"}\n', "'train_loss' must be a number"),
        "result.json": ("[]", "it must be a JSON object"),
        "sharpness.json": ('{"stages": [5]}', "stages must be an object"),
        "paper.json": ("{", "cannot be read"),
        "landscape.npz": ("PK", "cannot be read"),
        "config.json": (
            f'{{"format": {RUN_FORMAT}, "config": {{}}, "devices": 5, "partition": {{}}}}',
            "devices must be a list",
        ),
    }
    for name, (content, said) in damages.items():
        before = (run / name).read_bytes() if (run / name).exists() else None
        (run / name).write_text(content)
        assert said in refused(capsys, "report", run)
        (run / name).unlink() if before is None else (run / name).write_bytes(before)
    about = {"partition": {"class_counts": [["<b>"]]}}
    assert "class_counts" in refused(capsys, "report", folders.write_run(tmp_path / "x", about=about))
    assert not list(tmp_path.rglob("*.html*"))


def test_a_landscape_has_a_row_for_each_y_and_a_paper_without_a_number_a_dash(tmp_path):
    paper = {"table": "levels", "row": "r", "paper": None, "scale": "cpu: small"}
    run = folders.write_run(tmp_path / "run", paper=paper)
    x, y = np.array([0.0, 1, 2]), np.array([0.0, 1])
    np.savez(run / "landscape.npz", x=x, y=y, loss=10 * x[:, None] + y[None, :] + np.zeros((1, 3, 2)))
    found = data_of(folders.make_page(tmp_path, run))["runs"][0]
    assert found["landscape"]["loss"] == [[0, 10, 20], [1, 11, 21]]
    assert "<td>None</td>" not in (tmp_path / "page.html").read_text()


# ---- Behaviour


@needs_browser
def test_what_a_console_says_is_noticed_and_foreign_scripts_do_not_run(tmp_path):
    page = folders.make_page(tmp_path, folders.write_run(tmp_path / "run"))
    _, console = browse(page, tmp_path, script="console.error('on purpose')")
    assert any("on purpose" in line for line in console)
    _, console = browse(page, tmp_path, script="undefinedFunction()")
    assert any("undefinedFunction is not defined" in line for line in console)
    foreign = tmp_path / "foreign.html"
    foreign.write_text(page.read_text().replace("</body>", "<script>document.title='ran'</script></body>"))
    tree, console = browse(foreign, tmp_path)
    assert tree.find("title")[0][1] == "run"  # the page's policy let nothing run but its own script
    assert any("Content Security Policy" in line for line in console)


@needs_browser
def test_curves_are_where_the_values_are_and_csv_has_all_of_them(tmp_path):
    long = folders.metrics(factor=0.5, count=5000)
    long[2345]["train_loss"] = 77.0  # a spike that must be seen
    sharpness = {
        "stages": [
            {"step": 8 * k, "epoch": 2 * k, "whose": "consensus", "lambda_max": 9.0 - k, "density": None}
            for k in range(3)
        ]
    }
    runs = [
        folders.write_run(tmp_path / "short", sharpness=sharpness),
        folders.write_run(tmp_path / "long", lines=long),
    ]
    page = folders.make_page(tmp_path, *runs)
    catch = """
      const blobs = [];
      URL.createObjectURL = (blob) => { blobs.push(blob); return "data:,"; };
      const names = [];
      HTMLAnchorElement.prototype.click = function () { names.push(this.download); };
      for (const button of document.querySelectorAll("button.csv")) button.click();
      blobs.forEach((blob, i) => blob.text().then((text) => {
        const pre = document.createElement("pre");
        pre.dataset.name = names[i];
        pre.textContent = text;
        document.body.append(pre);
      }));
    """
    tree, console = browse(page, tmp_path, script=catch)
    assert console == []
    saved = {found["data-name"]: list(csv.DictReader(io.StringIO(text))) for found, text in tree.find("pre")}
    for name, factor in (("train_loss", 1), ("test_accuracy", 100), ("consensus_distance", 1)):
        expected = [(run.name, line) for run in runs for line in run_folder.read_metrics(run) if name in line]
        assert [(row["run"], int(row["step"]), float(row[name])) for row in saved[f"{name}.csv"]] == [
            (run, line["step"], line[name]) for run, line in expected
        ]
        figure = figure_of(tree, name)
        is_log = figure["svg"]["data-log"] == "true"
        scaled = [factor * line[name] for run, line in expected if run == "short"]
        heights = [math.log(value) if is_log else value for value in scaled]
        pixels = figure["lines"]["short"]
        assert len(pixels) == len(scaled)
        slope, start = np.polyfit(heights, [y for _, y in pixels], 1)
        assert slope < 0  # larger is higher
        np.testing.assert_allclose([start + slope * h for h in heights], [y for _, y in pixels], atol=0.01)
        for at, text in figure["ticks"]:  # the axis says the same
            value = float(text)
            assert start + slope * (math.log(value) if is_log else value) == pytest.approx(at, abs=0.05)
    loss = figure_of(tree, "train_loss")
    assert 1000 < len(loss["lines"]["long"]) <= 2000
    top = min(y for _, y in loss["lines"]["long"])
    assert top == pytest.approx(min(y for line in loss["lines"].values() for _, y in line))
    assert sum(abs(y - top) < 0.01 for _, y in loss["lines"]["long"]) == 1  # the spike
    assert any("of 5,000 points; the CSV has all" in text for _, text in tree.find("p"))
    total = sum(len(run_folder.read_metrics(run)) for run in runs)
    assert len(saved["metrics.csv"]) == total
    assert saved["results.csv"][0]["test accuracy"] == "0.625"
    assert saved["traffic.csv"][0]["sent per agent"] == "8000"
    assert [row["dog"] for row in saved["class counts.csv"]] == ["0", "4", "2"]
    assert [float(row["lambda_max"]) for row in saved["lambda_max.csv"]] == [9.0, 8.0, 7.0]
    assert [float(row["weight"]) for row in saved["edges.csv"]] == pytest.approx([1 / 3] * 3)


def figure_of(tree, panel):
    """One panel's svg attributes, pixel lines by run and ticks (y, text) of its left axis."""
    found = {"svg": None, "lines": {}, "ticks": []}
    inside, run = False, None
    for tag, attributes, text in tree.elements:
        if tag == "figure":
            inside = attributes.get("data-panel") == panel
        elif inside and tag == "svg":
            found["svg"] = attributes
        elif inside and tag == "g":
            run = attributes.get("data-run")
        elif inside and tag == "polyline":
            found["lines"][run] = [
                tuple(map(float, pair.split(","))) for pair in attributes["points"].split()
            ]
        elif inside and tag == "text" and attributes.get("class") == "end":
            found["ticks"].append((float(attributes["y"]), "".join(text)))
    return found


@needs_browser
def test_hovering_keys_legend_scale_and_axis(tmp_path):
    runs = [folders.write_run(tmp_path / name) for name in ("one", "two")]
    script = """
      const told = {};
      const chart = document.querySelector("[data-panel=train_loss] svg");
      const lines = () => [...chart.querySelectorAll("[data-run]")].map((g) => g.dataset.run);
      const tip = () => [...chart.querySelectorAll(".tip text")].map((t) => t.textContent);
      const dot = chart.querySelector("circle").getBoundingClientRect();
      const at = { clientX: dot.x + dot.width / 2, clientY: dot.y + dot.height / 2 };
      chart.dispatchEvent(new PointerEvent("pointermove", at));
      told.hover = tip();
      chart.dispatchEvent(new PointerEvent("pointerleave"));
      told.left = tip();
      const press = (key) => chart.dispatchEvent(new KeyboardEvent("keydown", { key }));
      press("ArrowRight"); press("ArrowRight"); press("ArrowDown");
      told.keys = tip();
      told.said = document.getElementById("said").textContent;
      told.before = lines();
      document.querySelector(".legend button").click();
      told.after = lines();
      told.pressed = document.querySelector(".legend button").getAttribute("aria-pressed");
      told.log = chart.dataset.log;
      document.querySelector("[data-panel=train_loss] button.log").click();
      told.linear = chart.dataset.log;
      const axis = document.getElementById("x-axis");
      axis.value = "bytes_sent_per_agent";
      axis.dispatchEvent(new Event("change"));
      told.bytes = chart.dataset.x1;
      const pre = document.createElement("pre");
      pre.textContent = JSON.stringify(told);
      document.body.append(pre);
    """
    tree, console = browse(folders.make_page(tmp_path, *runs), tmp_path, script=script)
    assert console == []
    told = json.loads(tree.find("pre")[0][1])
    first, second = (line["train_loss"] for line in folders.metrics()[:2])
    assert told["hover"][0] in ("one", "two")  # they lie on each other
    value = f"{float(f'{first:.6g}'):g}"
    other = "two" if told["hover"][0] == "one" else "one"
    assert told["hover"][1:] == [f"epoch 0.25: {value}", f"{value}  {other}"]  # of all lines there
    assert told["left"] == []
    value = f"{float(f'{second:.6g}'):g}"
    assert told["keys"] == ["two", f"epoch 0.5: {value}", f"{value}  one"]
    assert told["said"] == ", ".join(told["keys"])
    assert told["before"] == ["one", "two"]
    assert told["after"] == ["two"]
    assert told["pressed"] == "false"
    assert (told["log"], told["linear"]) == ("true", "false")
    assert float(told["bytes"]) == 8000
