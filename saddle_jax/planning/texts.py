"""A run's step on devices that may not be there, as text: memory, exchanges, kernels, and whether it fits."""

import collections

from saddle_jax.core.ledger import readable
from saddle_jax.planning.forecast import Forecast


def forecast_lines(found: Forecast) -> tuple[list[str], list[str]]:
    """Writes what stands above and below the table of memory: the verdict, and what else was found."""
    above = [
        f"target      {found.target.text}: {found.placement}, {found.at_a_time} at a time",
        f"fits        {_verdict(found)}",
        *([] if found.has_data else ["data        not here: black images of its shapes stand in for it"]),
    ]
    advice = [f"to change   {line}" for line in found.advice]
    if not found.kernels:
        return above, [*advice, "compiled    not at all: the compiler refuses what does not fit"]
    below = [
        f"exchanges   {_exchanges(found)}",
        f"kernels     {', '.join(f'{count:,} x {kind}' for kind, count in found.kernels.items())}",
        f"window      {_window(found)}",
        f"compiled    {found.steps:,} {'step' if found.steps == 1 else 'steps'} a call, "
        f"in {found.compile_seconds:.1f} s",
    ]
    return above, advice + below


def _verdict(found: Forecast) -> str:
    shared = f" on {found.sharing} devices that share one memory" if found.sharing > 1 else ""
    taken = f"{readable(found.total * found.sharing)}{shared}"
    if found.memory is None:
        return f"nobody tells how much memory there is: it takes {taken}"
    return f"{'yes' if found.fits else 'NO'}: {taken} of {readable(found.memory)}"


def forecast_rows(found: Forecast) -> list[list[str]]:
    """Lists the bytes of a device as text: what the compiler said, and our own estimate beside it."""
    told = found.estimate
    rows = [
        ("models and state", found.models + found.state, told.carried),
        ("  models", found.models, None),
        ("  state", found.state, None),
        ("data", found.data, told.data),
        ("working", found.working, told.working),
        ("all", found.total, told.total // told.sharing),
    ]
    header = ["bytes of a device", "compiled", "estimated"]
    return [header, *([name, readable(a), "" if b is None else readable(b)] for name, a, b in rows)]


def _exchanges(found: Forecast) -> str:
    if not found.collectives:
        return "none between devices"
    counted = collections.Counter(found.collectives)
    each = [f"{count} x {one.kind} of {one.shape}" for one, count in counted.items()]
    total = sum(one.bytes for one in found.collectives)
    return f"{', '.join(each)}: {readable(total)} to each device in a step"


def _window(found: Forecast) -> str:
    if not found.largest_window:
        return "no convolutions"
    return f"at most {found.largest_window} long in a convolution"
