"""What each kind of hardware is asked to do, and that nobody else asks which one it is."""

import pathlib

import pytest

import saddle_jax
from saddle_jax.devices import policy

PACKAGE = pathlib.Path(saddle_jax.__file__).parent


def test_no_other_module_asks_jax_for_its_backend():
    words = ("default_backend", "xla_bridge")
    asking = [path for path in PACKAGE.rglob("*.py") if any(word in path.read_text() for word in words)]
    assert [path.relative_to(PACKAGE).as_posix() for path in asking] == ["devices/policy.py"]


def test_answers_are_for_this_hardware_or_for_a_named_target():
    def answers():
        return (
            policy.is_cpu(),
            policy.group_size(8),
            policy.trials_at_once(6),
            policy.steps_per_dispatch(),
            policy.devices_per_batch(8, 2),
            policy.landscape_points(),
            policy.activations_held(),
        )

    here = answers()
    assert here == (True, 1, 1, 1, 1, 1, 2)
    with policy.targeting("gpu"):
        assert answers() == (False, 8, 6, 5, 4, 16, 1)
        with policy.targeting("cpu"):
            assert answers() == here
        assert not policy.is_cpu()
    assert answers() == here
    assert policy.group_size(8, 3) == 3
    assert policy.group_size(2, 3) == 2


def test_agents_at_a_time_follow_from_their_work_and_the_room_for_it():
    def chosen(agents, operations=1e8, memory=10, room=None):
        return policy.group_size(agents, 0, lambda: policy.Work(operations, memory, room))

    assert chosen(40) == 1  # a CPU
    with policy.targeting("gpu"):
        assert chosen(10) == 10  # small kernels are joined
        assert chosen(40) == 20  # as many as fill a device, in equal groups
        assert chosen(41) == 20  # or nearly
        assert chosen(40, operations=5e9) == 1  # a kernel that fills it alone
        assert chosen(10, room=59) == 5
        assert chosen(10, room=0) == 1
        assert policy.group_size(10, 7, lambda: pytest.fail("nobody asks")) == 7
        assert policy.group_size(10) == 10
        assert policy.device_memory() is None
    with policy.targeting("gpu", 5):
        assert policy.device_memory() == 5


def test_mistakes():
    with (
        pytest.raises(ValueError, match="kind must be one of 'cpu', 'gpu', 'tpu', got 'fpga'"),
        policy.targeting("fpga"),
    ):
        pass
    with pytest.raises(ValueError, match="agents_per_call must be an integer >= 0, got -1"):
        policy.group_size(8, -1)
