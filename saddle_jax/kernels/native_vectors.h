// Vectors of GCC and Clang, as wide as the machine's: what all kernels of our own are written with.

#ifndef SADDLE_JAX_MODELS_NATIVE_VECTORS_H_
#define SADDLE_JAX_MODELS_NATIVE_VECTORS_H_

#include <cstdint>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kRegisters = 32;
#elif defined(__AVX__)
constexpr int kLanes = 8, kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kLanes = 4, kRegisters = 32;
#else
constexpr int kLanes = 4, kRegisters = 16;
#endif

// A vector that may lie anywhere in memory.
typedef float Vector __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
using Floats = std::vector<float>;
using Index = std::int64_t;

inline Vector Load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline void Store(float* to, Vector value) { *reinterpret_cast<Vector*>(to) = value; }
inline Index Ceil(Index a, Index b) { return (a + b - 1) / b; }

}  // namespace

#endif  // SADDLE_JAX_MODELS_NATIVE_VECTORS_H_
