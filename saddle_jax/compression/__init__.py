"""Compression operators Q: pure functions of one tensor, with their packed encodings and costs in bits."""

from saddle_jax.base.registry import Registry

# A new operator is a file in this folder and a line here.
COMPRESSORS = Registry(
    "compressor",
    {
        "identity": "saddle_jax.compression.base:identity",
        "quantize": "saddle_jax.compression.quantization:quantize",
        "top_k": "saddle_jax.compression.sparsification:top_k",
        "random_k": "saddle_jax.compression.sparsification:random_k",
        "sign": "saddle_jax.compression.signs:sign",
        "natural": "saddle_jax.compression.natural:natural",
        "ternary": "saddle_jax.compression.ternary:ternary",
        "low_rank": "saddle_jax.compression.low_rank:low_rank",
    },
    kinds=["saddle_jax.base.types:Operator"],
    group="saddle_jax.compressors",
)
