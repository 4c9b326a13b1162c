// EvoNorm-S0 with the hard sigmoid (evonorm.py has the formula) and its derivative, for one core of a CPU.
//
// An image is taken as a whole: its statistics, and then its result, while it is in the caches. So every image is
// read from memory once and written once, where XLA takes a pass over all images for each sum.
//
//   forward   y = scale n(x) / d + bias,  n(x) = x clip(x / 6 + 1/2, 0, 1),  d = sqrt(var_group(x) + epsilon)
//   backward  dx = scale g n'(x) / d - (x - mean) / (d^3 N) sum_group(scale g n(x)),  N numbers in a group

#ifndef SADDLE_JAX_MODELS_NATIVE_EVONORM_H_
#define SADDLE_JAX_MODELS_NATIVE_EVONORM_H_

#include <algorithm>
#include <cmath>

#include "native_vectors.h"

namespace {

constexpr Index kGroups = 8;
constexpr float kEpsilon = 1e-5f;

// Images of `pixels` pixels and C channels, as rows of whole vectors: of one pixel, or of two where C is no multiple of
// a vector. Number n of a row belongs to channel n % C.
struct NormShape {
  Index models, batch, pixels, channels;  // each model has its own scale and bias, and `batch` images

  Index row() const { return channels % kLanes ? 2 * channels : channels; }
  Index rows() const { return pixels * channels / row(); }
  Index image() const { return pixels * channels; }
  Index count() const { return pixels * (channels / kGroups); }  // numbers in a group
  bool is_whole() const { return channels % kGroups == 0 && row() % kLanes == 0 && image() % row() == 0; }

  // Adds the second pixel of a row, if it has two, to the first; and the way back.
  void AddUp(float* numbers) const {
    for (Index n = channels; n < row(); ++n) numbers[n - channels] += numbers[n];
  }
  void Repeat(float* numbers) const { std::copy(numbers, numbers + row() - channels, numbers + channels); }
};

// What is known of each number of a row.
struct Rows {
  Floats data;
  Index row;

  Rows(Index count, Index row) : data(count * row), row(row) {}
  float* operator[](Index n) { return &data[n * row]; }
};

// Sums S terms down each column of vectors; `term(n, totals)` adds those of the vector at number n to S totals.
template <int S, typename Add>
void SumColumns(const NormShape& s, Index column, Vector (&sums)[S], Add add) {
  constexpr int kAtOnce = 4;  // independent sums, so that none waits for the one before
  Vector totals[kAtOnce][S] = {};
  Index row = s.row(), n = column, rows = s.rows(), r = 0;
  for (; r + kAtOnce <= rows; r += kAtOnce)
    for (int i = 0; i < kAtOnce; ++i, n += row) add(n, totals[i]);
  for (; r < rows; ++r, n += row) add(n, totals[0]);
  for (int t = 0; t < S; ++t) sums[t] = (totals[0][t] + totals[1][t]) + (totals[2][t] + totals[3][t]);
}

// Replaces the number of each channel by the sum over its group, times a factor.
void SumGroups(const NormShape& s, float* numbers, float factor = 1.0f) {
  const Index width = s.channels / kGroups;
  for (Index group = 0; group < kGroups; ++group, numbers += width) {
    float total = 0;
    for (Index c = 0; c < width; ++c) total += numbers[c];
    for (Index c = 0; c < width; ++c) numbers[c] = total * factor;
  }
}

inline Vector Clip(Vector x) {
  const Vector zero = {}, one = zero + 1.0f;
  x = x < zero ? zero : x;
  return x > one ? one : x;
}

inline Vector Gate(Vector x) { return Clip(x * (1.0f / 6.0f) + 0.5f); }

// The derivative of x Gate(x): x / 3 + 1/2 inside of (-3, 3), outside the gate itself.
inline Vector Slope(Vector x) {
  const Vector zero = {};
  Vector inside = x * (1.0f / 3.0f) + 0.5f;
  return x <= zero - 3.0f ? zero : x >= zero + 3.0f ? zero + 1.0f : inside;
}

// Computes y, and mean and deviation [models, batch, C] of each image's groups, repeated over their channels.
void EvoNormForward(const NormShape& s, const float* x, const float* scale, const float* bias, float* y, float* mean,
                    float* deviation) {
  const Index row = s.row();
  const float share = 1.0f / s.count();
  Rows known(4, row);
  float *means = known[0], *squares = known[1], *factors = known[2], *offsets = known[3];
  for (Index image = 0; image < s.models * s.batch; ++image) {
    const Index model = image / s.batch * s.channels;
    for (Index q = 0; q < row; q += kLanes) {
      Vector sums[1];
      SumColumns<1>(s, q, sums, [&](Index n, Vector(&totals)[1]) { totals[0] += Load(x + n); });
      Store(means + q, sums[0]);
    }
    s.AddUp(means), SumGroups(s, means, share), s.Repeat(means);
    for (Index q = 0; q < row; q += kLanes) {
      Vector sums[1], middle = Load(means + q);
      SumColumns<1>(s, q, sums, [&](Index n, Vector(&totals)[1]) {
        Vector distance = Load(x + n) - middle;
        totals[0] += distance * distance;
      });
      Store(squares + q, sums[0]);
    }
    s.AddUp(squares), SumGroups(s, squares, share);
    for (Index c = 0; c < s.channels; ++c) {
      mean[c] = means[c], deviation[c] = std::sqrt(squares[c] + kEpsilon);
      factors[c] = scale[model + c] / deviation[c];
      offsets[c] = bias[model + c];
    }
    s.Repeat(factors), s.Repeat(offsets);
    for (Index q = 0; q < row; q += kLanes) {
      Vector factor = Load(factors + q), offset = Load(offsets + q);
      for (Index n = q; n < s.image(); n += row) {
        Vector value = Load(x + n);
        Store(y + n, value * Gate(value) * factor + offset);
      }
    }
    x += s.image(), y += s.image(), mean += s.channels, deviation += s.channels;
  }
}

// Computes the gradient with respect to x, and those of scale and bias [models, C], summed over a model's images.
void EvoNormBackward(const NormShape& s, const float* x, const float* scale, const float* mean, const float* deviation,
                     const float* g, float* dx, float* dscale, float* dbias) {
  const Index row = s.row();
  const float share = 1.0f / s.count();
  Rows known(5, row);
  float *means = known[0], *products = known[1], *sums = known[2], *factors = known[3], *inverses = known[4];
  for (Index image = 0; image < s.models * s.batch; ++image) {
    const Index model = image / s.batch * s.channels;
    if (image % s.batch == 0)
      for (Index c = 0; c < s.channels; ++c) dscale[model + c] = dbias[model + c] = 0;
    for (Index q = 0; q < row; q += kLanes) {
      Vector found[2];
      SumColumns<2>(s, q, found, [&](Index n, Vector(&totals)[2]) {
        Vector value = Load(x + n), flow = Load(g + n);
        totals[0] += flow * (value * Gate(value));
        totals[1] += flow;
      });
      Store(products + q, found[0]), Store(sums + q, found[1]);
    }
    s.AddUp(products), s.AddUp(sums);
    for (Index c = 0; c < s.channels; ++c) {
      inverses[c] = 1.0f / deviation[c];
      factors[c] = scale[model + c] * inverses[c];
      dscale[model + c] += products[c] * inverses[c];
      dbias[model + c] += sums[c];
      products[c] *= scale[model + c];
    }
    SumGroups(s, products, share);
    for (Index c = 0; c < s.channels; ++c) products[c] *= inverses[c] * inverses[c] * inverses[c];
    std::copy(mean, mean + s.channels, means);
    s.Repeat(means), s.Repeat(factors), s.Repeat(products);
    for (Index q = 0; q < row; q += kLanes) {
      Vector middle = Load(means + q), factor = Load(factors + q), pull = Load(products + q);
      for (Index n = q; n < s.image(); n += row) {
        Vector value = Load(x + n);
        Store(dx + n, Load(g + n) * factor * Slope(value) - (value - middle) * pull);
      }
    }
    x += s.image(), g += s.image(), dx += s.image(), mean += s.channels, deviation += s.channels;
  }
}

}  // namespace

#endif  // SADDLE_JAX_MODELS_NATIVE_EVONORM_H_
