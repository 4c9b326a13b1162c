"""Settings of unreliable networks and of time on them: from the command line to what a run leaves behind."""

import dataclasses
import math
import re

import folders
import numpy as np
import pytest
from dying import Deadly, Killed
from folders import OBJECTIVE

import saddle_jax as sj
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.registry import Spec
from saddle_jax.cli.__main__ import main
from saddle_jax.runs import run_folder
from saddle_jax.runs.table import load_runs
from saddle_jax.settings import network
from saddle_jax.settings.settings import Settings
from saddle_jax.training import describe, loop
from saddle_jax.training.build import build_method
from saddle_jax.training.program import build
from saddle_jax.training.progress import Screen

# Three agents, an epoch of 15 steps; models of 650 numbers.
SMALL = Settings(
    agents=3, model="logistic", method="dpsgd", epochs=1, batch_size=32, partition="dirichlet(1.0)",
    learning_rate=0.05, devices="1", checkpoint_every_steps=4, log_every_steps=5, eval_agents="never",
)  # fmt: skip
TIMES = "latency='10ms', bandwidth='1Mbit', compute='50ms'"
TIMED = {"timing": f"timing({TIMES})"}
STRAGGLING = {"timing": f"timing({TIMES}, compute_sigma=0.3)"}
STEP = 0.05 + 0.01 + 8 * 4 * 650 / 1e6
QUIET = Screen(quiet=True)


def small(**changes):
    return dataclasses.replace(SMALL, **changes)


def faults(options):
    return {"faults": f"faults({options})"}


def timing(options):
    return {"timing": f"timing({options})"}


# ---- Settings


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10ms", 0.01),
        ("0.5s", 0.5),
        ("3", 3.0),
        ("250 us", 2.5e-4),
        ("2min", 120.0),
        ("1e-3s", 1e-3),
        (0.5, 0.5),
    ],
)
def test_times_have_units(text, seconds):
    assert network.quantity("latency", text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("100Mbit", 1e8),
        ("1.5Gbit", 1.5e9),
        ("56kbit", 56e3),
        ("9600", 9600.0),
        ("1Tbit", 1e12),
        (2e6, 2e6),
    ],
)
def test_bandwidths_have_units(text, bits):
    assert network.quantity("bandwidth", text) == pytest.approx(bits)


def test_settings_become_faults_and_times(tmp_path):
    assert network.make_faults(SMALL.faults, 3) is None
    assert network.make_timing(SMALL.timing, 3) is None
    assert network.make_faults("faults(symmetric=False)", 3) is None
    lossy = (
        "faults(drop=0.2, burst=3, symmetric=False, lost_weight=renormalise, delay=1, offline=0.1, "
        "mean_offline=4, computes=True, joins=[[1, 7]], leaves=[[0, 9], [2, 11]])"
    )
    assert repr(network.make_faults(lossy, 3)) == (
        "Faults(drop=0.2, offline=0.1, delay=1, symmetric=False, lost_weight=renormalise, burst=3, "
        "mean_offline=4, computes=True, joins={1: 7}, leaves={0: 9, 2: 11})"
    )
    assert repr(network.make_timing(STRAGGLING["timing"], 3)) == (
        "Timing(latency=0.01, bandwidth=1000000.0, compute=0.05, compute_sigma=0.3)"
    )
    paths = {}
    for name, shape in (("latency", (3, 3)), ("bandwidth", (3, 3)), ("compute", (5, 3))):
        paths[name] = str(tmp_path / f"{name}.npy")
        np.save(paths[name], np.arange(1.0, 1 + math.prod(shape)).reshape(shape))
    timing = network.make_timing(str(Spec("timing", (), tuple(paths.items()))), 3)
    assert timing.latency[2, 0] == 7
    assert timing.bandwidth.shape == (3, 3)
    assert timing.compute.shape == (5, 3)
    method = build_method(small(**TIMED, faults="faults(drop=0.2)"), sj.ring(3), lambda t: 0.1)
    assert (method.faults.drop, method.timing.latency) == (0.2, 0.01)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (timing("latency='10pc'"), "latency must be a time such as 10ms or 0.5s, or a file .npy, got '10pc'"),
        (timing("latency='-1ms'"), "latency must be a time"),
        (timing("latency='nan'"), "latency must be a time"),
        (timing("bandwidth='100Mb'"), "bandwidth must be bits per second such as 100Mbit or 1Gbit, or"),
        (timing("bandwidth='0Mbit'"), "bandwidth must be above 0, bits per second such as .*, got '0Mbit'"),
        (timing("compute='1e999s'"), "compute must be finite, a time such as .*, got '1e999s'"),
        (timing("compute_sigma=-1"), "compute_sigma must be a number >= 0, got -1"),
        (timing("latncy=1"), "did you mean 'latency'.* timing takes latency, .* got option 'latncy'"),
        ({"timing": "clock"}, "timing must be one of none, timing, got 'clock'"),
        (timing("latency=[1, 2]"), r"latency must be a number or \[A, A\], seconds >= 0, got \[1, 2\]"),
        (timing("latency={tmp}/no.npy"), "latency must be a file, got '.*no.npy'"),
        (timing("latency='{tmp}/text.npy'"), "latency must be a file that NumPy can read"),
        (timing("latency='{tmp}/four.npy'"), r"latency must be of 3 agents, got shape \(4, 4\)"),
        (faults("drop=1.0"), "drop must be .* below|drop must be .*< 1"),
        (faults("drop=0.9, burst=2.0"), "burst, the mean number of steps at drop = 0.9, must be .* got 2"),
        (faults("joins=[[3, 10]]"), "joins: agent must be .* got 3"),
        (faults("joins=[[1, 10], [1, 20]]"), "joins must name each agent once"),
        (faults("leaves=1"), "leaves must be {agent: step}, or pairs such as .*, got 1"),
        (faults("lost_weight=lost"), "lost_weight must be"),
        ({**faults("delay=1"), "topology": "one_peer_exponential", "agents": 4}, "delay must be 0 on"),
        ({"sweep": "faults.drop=0.1,1.5"}, "drop must be"),
    ],
    ids=str,
)  # fmt: skip
def test_mistakes_are_told_in_one_line(changes, message, tmp_path):
    (tmp_path / "text.npy").write_text("no numbers")
    np.save(tmp_path / "four.npy", np.ones((4, 4)))
    changes = {
        name: value.format(tmp=tmp_path) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    with pytest.raises(ArgumentError, match=message) as caught:
        build(small(**changes)).method  # noqa: B018
    assert "\n" not in str(caught.value)


def test_the_command_line_tells_them_in_one_line_too(tmp_path, capsys):
    common = [
        "saddle",
        "train",
        "--model=logistic",
        "--agents=3",
        f"--workdir={tmp_path / 'x'}",
    ]
    for flag in ("--timing.latency=soon", "--timing.bandwidth=/nowhere/links.npy", "--faults.drop=2"):
        assert main([*common, flag]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "x").exists()


# ---- Runs


def test_a_timed_run_says_how_long_it_would_have_taken(tmp_path, capsys):
    result = loop.train(small(**TIMED), tmp_path / "run", Screen())
    assert result["simulated_seconds"] == pytest.approx(15 * STEP, rel=1e-5)
    lines = run_folder.read_metrics(tmp_path / "run")
    assert [line["step"] for line in lines] == [5, 10, 15, 15]  # the last one evaluates
    for line in lines:
        assert line["simulated_seconds"] == pytest.approx(line["step"] * STEP, rel=1e-5)
    told = capsys.readouterr().out
    assert "time       latency 10 ms, 1 Mbit/s, 50 ms per backward pass\n" in told
    assert "simulated time       1.21 s  (on this network)\n" in told
    assert "network" not in told.replace("(on this network)", "")
    (run,) = load_runs([tmp_path / "run"])
    assert run.curve("test_accuracy", "simulated_seconds")[0] == [result["simulated_seconds"]]
    assert run.curve("train_loss", "backward_passes")[0] == [5, 10, 15]


@pytest.mark.parametrize(
    "changes",
    [
        faults("drop=0.3, burst=3.0, symmetric=False, lost_weight=renormalise"),
        {**faults("delay=2"), "method": "qgm", **timing("compute='50ms', compute_sigma=0.5")},
        {**faults("offline=0.3, mean_offline=2.0, computes=True"), "method": "q_saddle"},
        faults("joins=[[1, 6]], leaves=[[0, 9]]"),
    ],
    ids=str,
)
def test_a_run_with_each_fault_learns_and_says_what_it_sent(changes, tmp_path):
    result = loop.train(small(**changes), tmp_path / "run", QUIET)
    assert result["status"] == "finished"
    assert result["test_accuracy"] > 0.3
    assert ("simulated_seconds" in result) == ("timing" in changes)
    planned = 15 * 2 * 4 * 650
    (line,) = [line for line in run_folder.read_metrics(tmp_path / "run") if "test_loss" in line]
    for name in ("bytes_sent_per_agent", "paper_bytes_sent_per_agent"):
        assert result[name] == line[name]
        if re.search("offline|joins", changes.get("faults", "")):
            assert 0 < result[name] < planned
        else:
            assert result[name] == planned  # what was lost has been sent
    if "joins" in changes.get("faults", ""):  # two are there in steps 0 to 5 and from 9 on, all between
        assert result["bytes_sent_per_agent"] == (6 * 2 + 3 * 6 + 6 * 2) * 4 * 650 // 3


@pytest.mark.usefixtures("built_once")
def test_a_run_on_a_bad_network_goes_on_bit_for_bit(tmp_path):
    """What links and agents are in, what is late and what the clocks say, is saved."""
    config = small(
        **faults("drop=0.3, burst=3.0, offline=0.2, mean_offline=2.0, delay=2"),
        **timing(f"{TIMES}, compute_sigma=0.5"),
        log_every_steps=1,
    )
    whole = loop.train(config, tmp_path / "whole", QUIET)
    for steps in (3, 7):
        with pytest.raises(Killed):
            loop.train(config, tmp_path / "killed", Deadly(steps))
    result = loop.train(config, tmp_path / "killed", QUIET)
    same = ("params_sha256", "simulated_seconds", "bytes_sent_per_agent", "test_loss")
    assert [result[name] for name in same] == [whole[name] for name in same]
    assert run_folder.read_metrics(tmp_path / "killed") == run_folder.read_metrics(tmp_path / "whole")
    assert whole["simulated_seconds"] > 15 * 0.05


SWEPT = small(seeds="0,1", sweep="faults.drop=0,0.4 faults.offline=0,0.3", **TIMED)
ALONE = (0, 7)  # of these trials: nothing goes wrong, everything does


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Folders: all trials, one after the other, and some of them by themselves."""
    folder = tmp_path_factory.mktemp("swept")
    loop.train(SWEPT, folder / "in turn", QUIET)
    for number in ALONE:
        loop.train(SWEPT.each()[number], folder / str(number), QUIET)
    return folder


@pytest.mark.parametrize("how", ["in turn", "at once"])
def test_swept_faults_are_the_runs_they_would_be_alone(how, swept, tmp_path):
    """One program; each seed and share of lost messages is a run of its own, down to its books and clocks."""
    workdir = swept / how
    if how == "at once":
        workdir = tmp_path / how
        loop.train(dataclasses.replace(SWEPT, agents_per_call=12), workdir, QUIET)
    result, lines = run_folder.read_result(workdir), run_folder.read_metrics(workdir)
    runs = load_runs([workdir])
    for number in ALONE:
        alone, found = run_folder.read_result(swept / str(number)), result["trials"][number]
        for name in ("test_loss", "test_accuracy", "consensus_distance"):
            assert found[name] == pytest.approx(alone[name], rel=2e-3, abs=3e-3)
        for name in ("bytes_sent_per_agent", "paper_bytes_sent_per_agent"):
            assert found[name] == alone[name] == runs[number].result[name]
        assert found["simulated_seconds"] == pytest.approx(alone["simulated_seconds"], rel=1e-5)
        (own,) = load_runs([swept / str(number)])
        for name in ("simulated_seconds", "bytes_sent_per_agent"):
            assert runs[number].curve("train_loss", name)[0] == pytest.approx(
                own.curve("train_loss", name)[0]
            )
    sent = [end["bytes_sent_per_agent"] for end in result["trials"]]
    assert sent[0] == 15 * 2 * 4 * 650 > sent[7]
    assert result["bytes_sent_per_agent"] == round(np.mean(sent))
    assert lines[0]["bytes_sent_per_agent_by_trial"][0] == 5 * 2 * 4 * 650
    assert result["settings"][0]["bytes_sent_per_agent"] == sent[0]


def test_every_verb_reads_such_runs(swept, tmp_path, unrendered, capsys):
    both = [str(swept / "in turn"), str(swept / "7")]
    for x in ("epoch", "step", "bytes", "passes", "seconds"):
        picture = f"--output={tmp_path / x}.png"
        assert main(["saddle", "figure", "curves", *both, f"--x={x}", picture]) == 0
    assert main(["saddle", "report", *both, f"--output={tmp_path / 'page.html'}"]) == 0
    assert main(["saddle", "list", str(swept)]) == 0
    assert main(["saddle", "evaluate", both[1]]) == 0
    assert main(["saddle", "evaluate", both[0], "--trial=1"]) == 0
    assert capsys.readouterr().err == ""
    assert "simulated seconds" in (tmp_path / "page.html").read_text()
    untimed = folders.write_run(tmp_path / "untimed")
    picture = f"--output={tmp_path / 'n.png'}"
    assert main(["saddle", "figure", "curves", both[1], str(untimed), "--x=seconds", picture]) == 2
    assert capsys.readouterr().err == (
        "saddle: curves against seconds need runs with --timing, which simulates time, got untimed\n"
    )


def test_a_run_whose_file_of_times_has_gone_can_still_be_read(tmp_path, capsys):
    path = tmp_path / "times.npy"
    np.save(path, np.array([0.1, 0.2, 0.4]))
    result = loop.train(small(**timing(f"compute={str(path)!r}")), tmp_path / "run", QUIET)
    assert result["simulated_seconds"] == pytest.approx(15 * 0.4, rel=1e-5)
    path.unlink()
    (run,) = load_runs([tmp_path / "run"])
    assert str(path) in run.config.timing
    assert (
        main(["saddle", "evaluate", str(tmp_path / "run")]) == 0
    )  # nor is any other file read that it names
    assert f"test accuracy {100 * result['test_accuracy']:.2f} %" in capsys.readouterr().out


# ---- In words


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": "qgm"}, "qgm, momentum 0.9 (Nesterov), weight decay 0.0001, gamma 1"),
        ({"method": "dpsgd(nesterov=False, gamma=0.5)"},
         "dpsgd(nesterov=False, gamma=0.5), momentum 0.9, weight decay 0.0001"),
        ({"method": "push_diging", "topology": "directed_ring"}, "push_diging, weight decay 0.0001"),
        ({"method": "qgm(gossip=choco(sign, gamma=0.4))"},
         "qgm(gossip=choco(sign, gamma=0.4)), momentum 0.9 (Nesterov), weight decay 0.0001"),
        ({"method": "beer(compressor=sign)"}, "beer(compressor=sign), weight decay 0.0001, gamma 0.1"),
        ({"method": "kgt"}, "kgt, weight decay 0.0001, gamma 1, gossip in every 5th step"),
        ({"method": "gradient_tracking(beta=0.5)"},
         "gradient_tracking(beta=0.5), weight decay 0.0001, gamma 1"),
        ({"method": "q_saddle(ascent_every=5)", "sweep": "method.rho=0,0.1 method.gamma=0.5,1"},
         "q_saddle(ascent_every=5), sam(rho=swept, every=5), momentum 0.9 (Nesterov), weight decay 0.0001, "
         "gamma swept"),
        ({"gradient": "looksam(every=3)", "method": "slowmo(dpsgd(compressor=top_k(0.3)), every=4)"},
         "slowmo(dpsgd(compressor=top_k(0.3)), every=4), looksam(rho=0.1, every=3, alpha=0.7), "
         "momentum 0.9 (Nesterov), weight decay 0.0001, gamma 1"),
    ],
    ids=str,
)  # fmt: skip
def test_the_heading_names_what_the_method_has(changes, said):
    program = build(small(**changes))
    assert describe.of_method(program.config, program.method) == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        (faults("drop=0.1, offline=0.05"),
         "10 % of messages lost (both ways, weight to self), 5 % of agents offline (standing still)"),
        (faults("drop=0.1, burst=3, symmetric=False, lost_weight=renormalise, delay=1"),
         "10 % of messages lost (each way by itself, 3 steps in a row, the others' weights scaled up), "
         "messages 1 round late"),
        ({"sweep": "faults.drop=0.1,0.2",
          **faults("offline=0.2, mean_offline=5, computes=True, joins=[[1, 2000]]")},
         "a swept share of messages lost (both ways, weight to self), "
         "20 % of agents offline (training alone, 5 steps in a row), agent 1 joins at step 2,000"),
    ],
    ids=str,
)  # fmt: skip
def test_the_heading_says_what_goes_wrong(changes, said):
    assert describe.of_faults(small(**changes)) == said


def test_times_are_written_for_people():
    assert describe.of_timing(SMALL) == ""
    timed = small(**STRAGGLING)
    assert describe.of_timing(timed).endswith("50 ms per backward pass (log-normal, sigma 0.3)")
    assert describe.of_timing(small(**timing("bandwidth='links.npy'"))) == "bandwidth from links.npy"
    written = {738: "12.3 min", 7300: "2.0 h", 100: "100 s", 0.0123: "12.3 ms", 2e-6: "2 us", 0: "0 s"}
    for seconds, text in written.items():
        assert describe.duration(seconds) == text


def test_what_was_not_finite_at_the_last_evaluation_is_told():
    """Agents that run away from each other may overflow before their losses do."""
    ended = {"status": "diverged", "diverged_at_step": 206, "steps": 220, "seconds": 1.0}
    ended |= {"bytes_sent_per_agent": 1, "paper_bytes_sent_per_agent": 1, "test_accuracy": 0.1}
    told = describe.closing_table(ended | {"test_loss": None, "consensus_distance": None}, OBJECTIVE)
    assert "test accuracy        10.00 %  (consensus model)\n" in told
    assert "test loss            not finite\n" in told
    assert "consensus distance   not finite\n" in told
    assert "test accuracy        not finite" in describe.closing_table(
        ended | {"test_accuracy": None}, OBJECTIVE
    )


def test_results_of_trials_have_a_spread_of_time():
    ended = {"status": "finished", "diverged": 0, "steps": 1, "seconds": 1.0, "trials": []}
    ended |= {"bytes_sent_per_agent": 1, "paper_bytes_sent_per_agent": 1}
    told = describe.closing_table(
        ended | {"simulated_seconds": 738.0, "simulated_seconds_std": 1.5}, OBJECTIVE
    )
    assert "simulated time       12.3 min +- 1.5 s  (on this network)" in told
    assert "simulated" not in describe.closing_table(ended, OBJECTIVE)
