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

  // Writes what is known of each channel to a row, for each of its pixels.
  void Fill(const float* channel, float* to) const {
    std::copy(channel, channel + channels, to);
    std::copy(channel, channel + row() - channels, to + channels);
  }
  // Writes the sum over the pixels of a row, which it changes, for each channel.
  void AddUp(float* numbers, float* to) const {
    for (Index n = channels; n < row(); ++n) numbers[n - channels] += numbers[n];
    std::copy(numbers, numbers + channels, to);
  }
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

// Replaces each number of a row by `of` the sum over the row of all that belong to the same group of channels.
template <typename Of>
void PerGroup(const NormShape& s, float* row, Of of) {
  const Index width = s.channels / kGroups;
  for (Index group = 0; group < kGroups; ++group, row += width) {
    float total = 0;
    for (Index first = 0; first < s.row(); first += s.channels)
      for (Index c = first; c < first + width; ++c) total += row[c];
    const float value = of(total);
    for (Index first = 0; first < s.row(); first += s.channels)
      for (Index c = first; c < first + width; ++c) row[c] = value;
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
  float *means = known[0], *deviations = known[1], *scales = known[2], *biases = known[3];
  for (Index image = 0; image < s.models * s.batch; ++image) {
    if (image % s.batch == 0) {
      const Index model = image / s.batch * s.channels;
      s.Fill(scale + model, scales), s.Fill(bias + model, biases);
    }
    for (Index q = 0; q < row; q += kLanes) {
      Vector sums[1];
      SumColumns<1>(s, q, sums, [&](Index n, Vector(&totals)[1]) { totals[0] += Load(x + n); });
      Store(means + q, sums[0]);
    }
    PerGroup(s, means, [&](float total) { return total * share; });
    for (Index q = 0; q < row; q += kLanes) {
      Vector sums[1], middle = Load(means + q);
      SumColumns<1>(s, q, sums, [&](Index n, Vector(&totals)[1]) {
        Vector distance = Load(x + n) - middle;
        totals[0] += distance * distance;
      });
      Store(deviations + q, sums[0]);
    }
    PerGroup(s, deviations, [&](float total) { return std::sqrt(total * share + kEpsilon); });
    for (Index q = 0; q < row; q += kLanes) {
      Vector factor = Load(scales + q) / Load(deviations + q), offset = Load(biases + q);
      for (Index n = q; n < s.image(); n += row) {
        Vector value = Load(x + n);
        Store(y + n, value * Gate(value) * factor + offset);
      }
    }
    std::copy(means, means + s.channels, mean), std::copy(deviations, deviations + s.channels, deviation);
    x += s.image(), y += s.image(), mean += s.channels, deviation += s.channels;
  }
}

// Computes the gradient with respect to x, and those of scale and bias [models, C], summed over a model's images.
void EvoNormBackward(const NormShape& s, const float* x, const float* scale, const float* mean, const float* deviation,
                     const float* g, float* dx, float* dscale, float* dbias) {
  const Index row = s.row();
  const float share = 1.0f / s.count();
  Rows known(6, row);
  float *means = known[0], *deviations = known[1], *scales = known[2], *products = known[3];
  float *dscales = known[4], *dbiases = known[5];
  for (Index image = 0; image < s.models * s.batch; ++image) {
    const Index model = image / s.batch * s.channels;
    if (image % s.batch == 0) s.Fill(scale + model, scales), std::fill(dscales, dscales + 2 * row, 0.0f);
    s.Fill(mean, means), s.Fill(deviation, deviations);
    for (Index q = 0; q < row; q += kLanes) {
      Vector sums[2];
      SumColumns<2>(s, q, sums, [&](Index n, Vector(&totals)[2]) {
        Vector value = Load(x + n), flow = Load(g + n);
        totals[0] += flow * (value * Gate(value));
        totals[1] += flow;
      });
      Store(products + q, sums[0] * Load(scales + q));
      Store(dscales + q, Load(dscales + q) + sums[0] / Load(deviations + q));
      Store(dbiases + q, Load(dbiases + q) + sums[1]);
    }
    PerGroup(s, products, [&](float total) { return total * share; });
    for (Index q = 0; q < row; q += kLanes) {
      Vector inverse = 1.0f / Load(deviations + q), factor = Load(scales + q) * inverse;
      Vector middle = Load(means + q), pull = Load(products + q) * (inverse * inverse * inverse);
      for (Index n = q; n < s.image(); n += row) {
        Vector value = Load(x + n);
        Store(dx + n, Load(g + n) * factor * Slope(value) - (value - middle) * pull);
      }
    }
    if ((image + 1) % s.batch == 0) s.AddUp(dscales, dscale + model), s.AddUp(dbiases, dbias + model);
    x += s.image(), g += s.image(), dx += s.image(), mean += s.channels, deviation += s.channels;
  }
}

}  // namespace

#endif  // SADDLE_JAX_MODELS_NATIVE_EVONORM_H_
