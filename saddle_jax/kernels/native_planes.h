// Images as planes of 16 channels with zeros around them, and sums over such planes in blocks of registers.
//
// A few neighbouring pixels times a few vectors of channels are summed in registers, with one load of weights for all
// pixels and one broadcast number for all vectors. In planes no border is a special case, and neighbouring pixels are
// always 64 bytes apart, whatever the stride and the number of channels.

#ifndef SADDLE_JAX_MODELS_NATIVE_PLANES_H_
#define SADDLE_JAX_MODELS_NATIVE_PLANES_H_

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "native_vectors.h"

namespace {

constexpr int kPlane = 16;  // channels of a plane

// ---- planes: images with zeros around them ----

// Images [H, W, C] as planes [C / 16, rows, phases, columns, 16]: padded column m s + f is column m of phase f.
// Where a row of the kernel needs at most 16 numbers, `merged` of their columns become one of more channels.
struct Planes {
  Index height, width, channels;  // of the images
  Index top, left;                // zeros before them
  Index rows, columns, phases;    // rows and columns beyond these are not needed
  Index used_rows, used_columns;  // of every `phases` rows or columns, the first so many are needed
  Index merged = 1;

  Index depth() const { return channels * merged; }
  Index planes() const { return Ceil(depth(), kPlane); }
  Index row() const { return phases * columns * kPlane; }
  Index plane() const { return rows * row(); }
  Index size() const { return planes() * plane(); }

  // Overwrites the planes of the image before, whose zeros stay.
  void Copy(const float* image, float* to) const {
    Floats padded(merged > 1 ? std::max(left + width, (columns - 1) * used_columns + kPlane) * channels + kPlane : 0);
    for (Index h = 0; h < height && h + top < rows; ++h) {
      if ((h + top) % phases >= used_rows && merged == 1) continue;
      const float* from = image + h * width * channels;
      float* line = to + (h + top) * row();
      if (merged > 1) {
        CopyMerged(from, line, padded);
      } else if (channels == kPlane && phases == 1) {
        std::memcpy(line + left * kPlane, from, std::min(width, columns - left) * sizeof(float) * kPlane);
      } else if (channels % kPlane == 0 && phases == 1) {
        CopyWhole(from, line);
      } else {
        CopySplit(from, line);
      }
    }
  }

 private:
  void CopyWhole(const float* from, float* line) const {  // in whole vectors, plane by plane
    Index pixels = std::min(width, columns - left);
    for (Index q = 0; q < planes(); ++q) {
      float* to = line + q * plane() + left * kPlane;
      for (Index w = 0; w < pixels; ++w)
        for (Index n = 0; n < kPlane; n += kLanes) Store(to + w * kPlane + n, Load(from + w * channels + q * kPlane + n));
    }
  }

  void CopySplit(const float* from, float* line) const {
    const Index full = channels / kPlane, rest = channels % kPlane;
    Index f = left % phases, m = left / phases;  // of the next pixel
    for (Index w = 0; w < width && m < columns; ++w, from += channels) {
      if (f < used_columns) {
        float* to = line + (f * columns + m) * kPlane;
        for (Index q = 0; q < full; ++q)
          for (Index n = 0; n < kPlane; n += kLanes) Store(to + q * plane() + n, Load(from + q * kPlane + n));
        if (rest) std::memcpy(to + full * plane(), from + full * kPlane, sizeof(float) * rest);
      }
      if (++f == phases) f = 0, ++m;
    }
  }

  // Here `phases` is 1, and used_columns the stride. A plane's numbers beyond the depth are never used.
  void CopyMerged(const float* from, float* line, Floats& padded) const {
    std::memcpy(&padded[left * channels], from, sizeof(float) * width * channels);
    for (Index m = 0; m < columns; ++m)
      for (Index n = 0; n < kPlane; n += kLanes)
        Store(line + m * kPlane + n, Load(&padded[m * used_columns * channels + n]));
  }
};

// One part of a sum: `depth` channels of a plane, from an offset on, times rows of weights.
struct Tap {
  Index offset, weight, depth;
};

// ---- sums over taps, for blocks of pixels and channels ----

// Where a row of pixels begins in the planes, and where its results go.
struct Line {
  Index from, to;
};

// Lines of `columns` pixels, whose results are `pixel` numbers apart and `width` numbers each.
struct Sums {
  const float* source;
  const std::vector<Line>& lines;
  const std::vector<Tap>& taps;
  float* result;
  Index columns, pixel, width;
};

// The most vectors of channels that are summed at once: four short ones.
constexpr int kWide = kLanes <= 4 ? 4 : 2;

// How many pixels times V vectors are summed at once: what the registers hold beside weights.
template <int V>
constexpr int kMost = V == 1 ? kRegisters / 2 : (kRegisters - V - 4) / V;

// Computes P pixels of R lines and V vectors of channels, of which the first `width` numbers are stored.
template <int R, int P, int V>
void Block(const Sums& sums, const Line* lines, Index column, const float* weights, Index channel) {
  Vector totals[R][P][V] = {};
  const float* source = sums.source + column * kPlane;
  for (const Tap& tap : sums.taps) {
    const float* pixels[R];
    for (int r = 0; r < R; ++r) pixels[r] = source + lines[r].from + tap.offset;
    const float* weight = weights + tap.weight * V * kLanes;
    for (Index c = 0; c < tap.depth; ++c, weight += V * kLanes) {
      Vector row[V];
      for (int v = 0; v < V; ++v) row[v] = Load(weight + v * kLanes);
      for (int r = 0; r < R; ++r)
        for (int p = 0; p < P; ++p)
          for (int v = 0; v < V; ++v) totals[r][p][v] += pixels[r][p * kPlane + c] * row[v];
    }
  }
  const Index width = sums.width - channel;
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) {
      float* pixel = sums.result + lines[r].to + (column + p) * sums.pixel + channel;
      if (width < V * kLanes) {
        std::memcpy(pixel, &totals[r][p][0], sizeof(float) * width);
      } else {
        for (int v = 0; v < V; ++v) Store(pixel + v * kLanes, totals[r][p][v]);
      }
    }
}

using BlockOf = decltype(&Block<1, 1, 1>);
template <int R, int V, int... P>
constexpr std::array<BlockOf, sizeof...(P)> BlocksOf(std::integer_sequence<int, P...>) {
  return {&Block<R, P + 1, V>...};
}

// Short lines are computed several at a time, so that there are enough sums to keep the machine busy: as many lines of
// R, Rest ... as the registers hold.
template <int V, int R, int... Rest>
void SumLines(const Sums& sums, const float* weights, Index channel, Index first) {
  if constexpr (kMost<V> / R > 0) {
    static constexpr auto kBlocks = BlocksOf<R, V>(std::make_integer_sequence<int, kMost<V> / R>());
    const Index count = static_cast<Index>(sums.lines.size()), most = kMost<V> / R;
    const Index even = R == 1 || sums.columns <= most ? Ceil(sums.columns, Ceil(sums.columns, most)) : 0;
    for (; even && first + R <= count; first += R)
      for (Index c = 0; c < sums.columns; c += even)
        kBlocks[std::min(even, sums.columns - c) - 1](sums, &sums.lines[first], c, weights, channel);
  }
  if constexpr (sizeof...(Rest) > 0) SumLines<V, Rest...>(sums, weights, channel, first);
}

// Weights [rows, width] in the order in which they are read: blocks of columns, rows of each, zeros at the end.
struct Weights {
  Index rows, width;
  int vectors;
  Floats data;

  Weights(Index rows, Index width) : rows(rows), width(width) {
    Index needed = Ceil(width, kLanes);
    vectors = needed % kWide == 0 ? kWide : needed % 2 == 0 ? 2 : 1;
    data.resize(Ceil(width, block()) * rows * block());
  }

  Index block() const { return vectors * kLanes; }

  // Takes `count` rows from row `first` on, as they are: [count, width].
  void Take(Index first, Index count, const float* from) {
    for (Index d = 0; d < width; d += block()) {
      float* to = &data[(d / block() * rows + first) * block()];
      const Index numbers = std::min(block(), width - d);
      for (Index r = 0; r < count; ++r) std::memcpy(to + r * block(), from + r * width + d, sizeof(float) * numbers);
    }
  }

  // Takes `count` rows from row `first` on, of which the transposed [width, count] is given.
  void TakeTransposed(Index first, Index count, const float* from) {
    for (Index d = 0; d < width; ++d, from += count) {
      float* to = &data[(d / block() * rows + first) * block() + d % block()];
      for (Index r = 0; r < count; ++r) to[r * block()] = from[r];
    }
  }

  void Sum(const Sums& sums) const {
    auto run = vectors == kWide ? &SumLines<kWide, 8, 6, 4, 3, 2, 1>
               : vectors == 2   ? &SumLines<2, 8, 6, 4, 3, 2, 1>
                                : &SumLines<1, 8, 6, 4, 3, 2, 1>;
    for (Index d = 0; d < width; d += block()) run(sums, &data[d * rows], d, 0);
  }
};

// ---- products summed over pixels ----

// Some rows of some images: x in planes, g as pixels of `pixel` numbers.
struct Strip {
  Index images, rows, columns;
  Index x_image, x_row;
  Index g_image, pixel;
};

template <int N, int V>
void Products(const Strip& strip, const float* x, const float* g, float* to, Index pitch) {
  Vector sums[N][V] = {};
  for (Index b = 0; b < strip.images; ++b) {
    for (Index r = 0; r < strip.rows; ++r) {
      const float* left = x + b * strip.x_image + r * strip.x_row;
      const float* right = g + b * strip.g_image + r * strip.columns * strip.pixel;
      for (Index c = 0; c < strip.columns; ++c, left += kPlane, right += strip.pixel) {
        Vector row[V];
        for (int v = 0; v < V; ++v) row[v] = Load(right + v * kLanes);
        for (int n = 0; n < N; ++n)
          for (int v = 0; v < V; ++v) sums[n][v] += left[n] * row[v];
      }
    }
  }
  for (int n = 0; n < N; ++n)
    for (int v = 0; v < V; ++v) {
      float* sum = to + n * pitch + v * kLanes;
      Store(sum, Load(sum) + sums[n][v]);
    }
}

// Adds the products of `depth` channels of x, at most a plane, with `width` channels of g, which fill whole vectors.
template <int V>
void AddProductsOf(const Strip& strip, Index depth, Index width, const float* x, const float* g, float* to) {
  constexpr int kMany = kRegisters / 2 / V;  // 4, 8 or 16
  for (Index d = 0; d < width; d += V * kLanes)
    for (Index c = 0; c < depth; c += kMany) {
      Index left = depth - c;
      auto run = left <= 4                   ? &Products<4, V>
                 : left <= 8 && kMany >= 8   ? &Products<(kMany < 8 ? kMany : 8), V>
                 : left <= 12 && kMany >= 12 ? &Products<(kMany < 12 ? kMany : 12), V>
                                             : &Products<kMany, V>;
      run(strip, x + c, g + d, to + c * width + d, width);
    }
}

void AddProducts(const Strip& strip, Index depth, Index width, const float* x, const float* g, float* to) {
  auto run = width % (2 * kLanes) == 0 ? &AddProductsOf<2> : &AddProductsOf<1>;
  run(strip, depth, width, x, g, to);
}

}  // namespace

#endif  // SADDLE_JAX_MODELS_NATIVE_PLANES_H_
