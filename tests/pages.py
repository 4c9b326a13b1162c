"""The commands and programs that README.md and docs/ show, and at what size the tests run them."""

import pathlib
import re
import subprocess

from benchmarks.__main__ import main as bench
from saddle_jax.cli.__main__ import main as saddle

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCS_FOLDER = ROOT / "docs"
DOCS = sorted(DOCS_FOLDER.glob("*.md"))
ALL = [README, *DOCS]
# Pages that `mkdocs build` makes from the package; tests/docs/site_test.py follows these links.
MADE_BY_THE_SITE = ("settings.md",)

# A command is run as it stands, followed by what the longest of these beginnings appends (the last value of
# a flag counts). A command that no table names is run with nothing appended.
#
# What would take hours, or needs CIFAR-10, which is no part of the project: appended in every run.
HOURS = {
    "bin/saddle train --config=configs/saddle.py:cpu": ("--dataset=digits --model=mlp --subset=640"),
    "bin/saddle train --config=configs/saddle.py:study": (
        "--dataset=digits --model=mlp --subset=640 --epochs=2"
    ),
    "bin/saddle data partition --dataset=cifar10": "--dataset=digits",
    "bin/saddle sharpness": "--images=256",
    "bin/saddle landscape": "--images=256",
    "bin/saddle reproduce --table=": "--scale=smoke",
    "bin/saddle reproduce --figure=": "--scale=smoke",
    "bin/bench": "--quick",
    "bin/bench input": "--model=resnet8 --agents=4",
}
# What would take CI longer than seconds: appended there, after the above.
MINUTES = {
    "bin/saddle train": "--model=logistic --epochs=1",
    'bin/saddle train --dataset="convex(': "--epochs=3",
    "bin/saddle train --dataset=characters": "--subset=640 --epochs=1",
    "JAX_NUM_CPU_DEVICES=4 bin/saddle train": "--model=logistic --epochs=1",
    "bin/saddle train --method=qgm --partition.alpha=0.001 --seeds=": "--model=logistic --epochs=1 --seeds=0",
    "bin/saddle train --method=q_saddle --partition.alpha=0.001 --seeds=": (
        "--model=logistic --epochs=1 --seeds=0"
    ),
    "bin/saddle train --model=mlp --method=": ("--model=logistic --epochs=1 --agents=4 --devices=1"),
    "bin/saddle train --model=mlp --method=qgm --seeds=": ("--model=logistic --epochs=1 --seeds="),
    "bin/saddle train --sharpness_every_epochs=5": "--model=logistic --epochs=5",
    "bin/saddle train --config=configs/saddle.py:cpu": "--model=logistic",  # all its epochs are used
    "bin/saddle compare": "--model=logistic --epochs=1",
    "bin/saddle compare --compare method=qgm,q_saddle --partition": (
        "--model=logistic --epochs=1 --seeds=0,1"
    ),
    "bin/saddle compare --compare method=dpsgd,qgm,ngm": (
        "--model=logistic --epochs=1 --compare=method=cga --seeds=0"
    ),
    "bin/saddle compare --compare method=qgm --compare gradient=": (
        "--model=logistic --epochs=1 --compare=gradient=plain,gsam --seeds=0"
    ),
    "bin/saddle compare --compare method=dpsgd,d2": (
        "--model=logistic --epochs=1 --compare=method=d2 --compare=topology=ring --compare=faults.drop=0,0.1"
    ),
    "bin/saddle sharpness": "--images=64",
    "bin/saddle landscape": "--images=64 --points=3",
    "bin/saddle reproduce theory runs/judged": "--samples=64",
    "bin/saddle reproduce theory --testbed": "--steps=50",
    "bin/saddle reproduce --paper=": "--paper=base_graph",
    "bin/saddle reproduce --table=1 --rows=": "--rows=cifar10-ring10-alpha0.01-qgm-none --seeds=1",
    "bin/saddle reproduce --table=": "--plan",
    "bin/saddle reproduce --table=1 --list": "",  # which lists already
    "bin/saddle reproduce --figure=": "--plan",
    "bin/bench q_saddle": "--repeats=1",
    "bin/bench q_saddle ": "--list",  # with other cases
    "bin/bench --output": "--list",
    "bin/bench --quick": "--list",
    "bin/bench processes": "--list",
    "bin/bench methods": "--list",
    "bin/bench growth": "--list",
}
NOT_IN_CI = {
    "bin/saddle report runs/digits-q_saddle-ring10-seed0": "the folder of the first command at its own size",
    "bin/bench input": "tests/cli/cli_test.py runs it at its smallest",
    "bin/saddle demo": "tests/cli/demo_test.py runs it with smaller models",
    "bin/saddle reproduce theory --corollary": "takes ten minutes: tests/papers/estimates_test.py has it",
}
NOT_RUN = {
    "bin/saddle sharpness --epochs=200": "needs the runs of a study, which take hours",
    "bin/saddle sharpness --epochs=50,100,200": "needs the same",
    "bin/saddle sharpness --epochs=40": "needs the same",
    "bin/saddle landscape --directions=orthogonal --images=512": "needs the same",
    "bin/saddle export --downsample=10 runs/study/*": "needs a study",
    "bin/saddle export --downsample=10 runs/long/*": "the same",
    "bin/test": "it is what runs this",
    "pip install '.[all]'": "downloads: tests/package/bare_test.py installs the wheel",
    "pip install --require-hashes": "installs anew what these tests run with: bin/test does the same",
    "pip install --no-deps --no-build-isolation": "the same",
    "bin/saddle serve": "it ends when it is interrupted: tests/serve/server_test.py does so",
    "bin/saddle data prepare": "downloads, and needs TensorFlow",
    "bin/saddle train --workdir=runs/two": "needs two shells: tests/devices/hosts_test.py starts such pairs",
    "SADDLE_EXTRAS=plan-cuda": "installs JAX for CUDA, which compiled_elsewhere_test.py compiles with",
    "bin/saddle train --plan --target=a40x4": "needs JAX for CUDA, as do the next two",
    "bin/saddle train --plan --target=h100x2": "compiled_elsewhere_test.py compiles where it is",
    "SADDLE_EXTRAS=cuda": "installs JAX for CUDA: tests/package/environment_test.py pretends to",
    "srun": "needs SLURM",
    "mpirun": "needs Open MPI",
}


def page(name):
    """README, or a page of docs/ by its name without the ending."""
    return README if name == "README" else DOCS_FOLDER / f"{name}.md"


def programs(page):
    """The Python blocks of a page, in order."""
    return [text for kind, text, _ in _pieces(page) if kind == "python"]


def commands(page):
    """The commands of a page, in order: the lines of its shell blocks, and those with options in its text."""
    shown: list[str] = []
    for kind, block, inline in _pieces(page):
        if kind == "sh":
            lines = block.replace("\\\n", " ").splitlines()
            shown += [_without_comment(line) for line in lines if _without_comment(line)]
        elif inline.startswith(("bin/saddle ", "bin/bench ")) and "--" in inline and "..." not in inline:
            shown.append(" ".join(inline.split()))
    return shown


def _pieces(page):
    return re.findall(r"^```(\w*)\n(.*?)^```|`([^`]+)`", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def _without_comment(line):
    return re.sub(r"(^|\s+)#.*", "", line).strip()


def entry(table, command):
    """What the longest beginning of a command stands for in a table; None where it has none."""
    beginnings = [beginning for beginning in table if command.startswith(beginning)]
    return table[max(beginnings, key=len)] if beginnings else None


def with_appended(command, *tables):
    """A command and what the tables append to it; --compare=NAME= takes the place of --compare NAME=."""
    appended = " ".join(filter(None, (entry(table, command) for table in tables)))
    for name in re.findall(r"--compare=([\w.]+)=", appended):
        command = re.sub(rf'--compare "?{name}=(\S*\([^"]*"|\S+)', "", command)
    return f"{command} {appended}".strip()


def run_here(command):
    """Exit status of a command; a plain one has no process of its own, as starting is most of its time."""
    if not re.fullmatch(r"bin/(saddle|bench) [^$;|&<>()`'\\~]*", re.sub(r'"[^"$`\\]*"', "", command)):
        return run_in_a_shell(command)
    # The words as a shell makes them of quotes, braces and stars.
    words = subprocess.run(
        ["bash", "-c", rf"printf '%s\0' {command}"], capture_output=True, text=True, check=True
    )
    program, *arguments = words.stdout.split("\0")[:-1]
    return (saddle if program == "bin/saddle" else bench)([program, *arguments])


def run_in_a_shell(command):
    """Exit status of a command as somebody types it."""
    return subprocess.run(["bash", "-c", command], check=False).returncode
