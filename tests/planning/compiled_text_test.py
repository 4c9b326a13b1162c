"""The text of compiled programs, as XLA prints it for CPUs, GPUs and TPUs."""

import jax
import jax.numpy as jnp
import pytest

from saddle_jax.planning import compiled_text
from saddle_jax.planning.compiled_text import Collective

GPU = """HloModule jit_run_steps, is_scheduled=true, num_partitions=4

%fused_add (param_0: f32[8,8], param_1: f32[8,8]) -> f32[8,8] {
  %param_0 = f32[8,8]{1,0} parameter(0)
  %param_1 = f32[8,8]{1,0} parameter(1)
  %dot.3 = f32[8,8]{1,0} dot(%param_0, %param_1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %copy.9 = f32[8,8]{1,0} copy(%dot.3)
}

ENTRY %main.1_spmd (a: f32[8,8], /*index=1*/param.1: f32[3,272474]) -> f32[3,272474] {
  %param.1 = f32[3,272474]{1,0} parameter(0), metadata={op_name="carry"}
  %c.1 = (f32[9]) custom-call(%a, %b), window={size=3x3}, custom_call_target="__cudnn$convBackwardFilter"
  %c.7 = (f32[32]) custom-call(%a, %c), window={size=31x32}, custom_call_target="__cudnn$convForward"
  %gemm.2 = (f32[8,8]{1,0}, s8[33]{0}) custom-call(%a, %c), custom_call_target="__cublas$gemm"
  %collective-permute-start.1 = (f32[1,272474], f32[1,272474]) collective-permute-start(%d), channel_id=1
  %collective-permute-done.1 = f32[1,272474]{1,0} collective-permute-done(%collective-permute-start.1)
  %all-gather-start = (f32[3]{0}, f32[12]{0}) all-gather-start(%e), channel_id=3, dimensions={0}
  %all-gather-done = f32[12]{0} all-gather-done(%all-gather-start)
  %all-reduce.1 = pred[] all-reduce(%f), channel_id=4, to_apply=%or
  %copy.1 = f32[3,272474]{1,0} copy(%param.1)
  ROOT %fusion.1 = f32[8,8]{1,0} fusion(%a, %b), kind=kCustom, calls=%fused_add
}
"""


def test_the_program_of_a_gpu():
    assert compiled_text.collectives(GPU) == [
        Collective("collective-permute", "f32[1,272474]", 4 * 272474),
        Collective("all-gather", "f32[12]", 48),
        Collective("all-reduce", "pred[]", 1),
    ]
    assert compiled_text.kernels(GPU) == {
        "matrix product": 2,
        "convolution kernel gradient": 1,
        "convolution": 1,
        "copy": 1,
        "fused kernel": 1,
    }
    assert compiled_text.largest_window(GPU) == 32
    assert compiled_text.largest_window(GPU.replace("31x32", "3x3")) == 3


@pytest.mark.parametrize("side", [1, 5])
def test_the_program_of_this_machine(side):
    def run(x, kernel):
        y = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jax.lax.fori_loop(0, 3, lambda _, y: jnp.sin(y), y)

    text = jax.jit(run).lower(jnp.zeros((2, 9, 9, 3)), jnp.zeros((side, side, 3, 4))).compile().as_text()
    found = compiled_text.kernels(text)
    assert found["loop"] == 1
    assert side == 1 or (found["convolution"], compiled_text.largest_window(text)) == (1, 5)
    assert compiled_text.collectives(text) == []
