"""What JAX compiles while something runs: a step that is compiled again is a mistake that nobody sees."""

import contextlib
from collections.abc import Iterator

import jax

_COMPILED = "/jax/core/compile/backend_compile_duration"  # what JAX calls the end of a compilation


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """Lists, while entered, each program that JAX compiles or takes from its cache on disk: "jit(step)"."""
    programs: list[str] = []

    def note(event: str, duration_secs: float, **about: str | int) -> None:
        if event == _COMPILED:
            programs.append(str(about.get("fun_name", "unknown")))

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield programs
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
