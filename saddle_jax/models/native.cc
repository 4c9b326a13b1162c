// Convolutions of images [B, H, W, C] with a kernel [h, w, C, D], and their two gradients, for one core of a CPU.
//
// The idea is the register block: a few neighbouring pixels times a few vectors of channels are summed in
// registers, with one load of weights for all pixels and one broadcast number for all vectors. Images are first
// copied into planes of 16 channels with zeros around them, so that no border is a special case and neighbouring
// pixels are always 64 bytes apart, whatever the stride and the number of channels.
//
//   forward          y[b, r, c, :] = sum over i, j of x[b, r s + i - p, c s + j - p, :] kernel[i, j, :, :]
//   input gradient   the same with the kernel transposed, for each of the s x s phases of the result by itself
//   kernel gradient  for each entry of the kernel, the sum over pixels of products of x and g
//
// There is no state, no thread and no random order: the same call gives the same bits. Vectors are those of GCC and
// Clang, as wide as the machine's.

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "native_evonorm.h"
#include "native_vectors.h"
#include "xla/ffi/api/ffi.h"

namespace {

constexpr int kPlane = 16;    // channels of a plane
constexpr int kPixels = 128;  // that a kernel gradient sums in registers before it adds them in memory

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
  Index size() const { return planes() * rows * row(); }

  // Overwrites the planes of the image before, whose zeros stay.
  void Copy(const float* image, float* to) const {
    for (Index h = 0; h < height && h + top < rows; ++h) {
      if ((h + top) % phases >= used_rows && merged == 1) continue;
      const float* from = image + h * width * channels;
      float* line = to + (h + top) * row();
      if (merged > 1) {
        CopyMerged(from, line);
      } else if (channels == kPlane && phases == 1) {
        std::memcpy(line + left * kPlane, from, std::min(width, columns - left) * sizeof(float) * kPlane);
      } else {
        CopySplit(from, line);
      }
    }
  }

 private:
  void CopySplit(const float* from, float* line) const {
    Index full = channels / kPlane, rest = channels % kPlane, plane = rows * row();
    for (Index w = 0; w < width; ++w, from += channels) {
      Index f = (w + left) % phases, m = (w + left) / phases;
      if (f >= used_columns || m >= columns) continue;
      float* to = line + (f * columns + m) * kPlane;
      for (Index q = 0; q < full; ++q) std::memcpy(to + q * plane, from + q * kPlane, sizeof(float) * kPlane);
      if (rest) std::memcpy(to + full * plane, from + full * kPlane, sizeof(float) * rest);
    }
  }

  void CopyMerged(const float* from, float* line) const {  // here `phases` is 1, and used_columns the stride
    for (Index m = 0; m < columns; ++m) {
      Index start = m * used_columns - left;
      Index low = std::max<Index>(start, 0), high = std::min(start + merged, width);
      if (low < high) {
        std::memcpy(line + m * kPlane + (low - start) * channels, from + low * channels,
                    sizeof(float) * (high - low) * channels);
      }
    }
  }
};

// One part of a sum: `depth` channels of a plane, from an offset on, times rows of weights.
struct Tap {
  Index offset, weight, depth;
};

// ---- sums over taps, for blocks of pixels and channels ----

// A result [rows, columns, width], whose pixels are `pixel` and whose rows are `row` numbers apart.
struct Result {
  float* data;
  Index rows, columns, row, pixel, width;
};

// Computes R rows of P pixels and V vectors of channels, of which the first `width` numbers are stored.
template <int R, int P, int V>
void Block(const float* source, Index source_row, const std::vector<Tap>& taps, const float* weights,
           const Result& result, float* to, Index width) {
  Vector sums[R][P][V] = {};
  for (const Tap& tap : taps) {
    const float* pixels[R];
    for (int r = 0; r < R; ++r) pixels[r] = source + r * source_row + tap.offset;
    const float* weight = weights + tap.weight * V * kLanes;
    for (Index c = 0; c < tap.depth; ++c, weight += V * kLanes) {
      Vector row[V];
      for (int v = 0; v < V; ++v) row[v] = Load(weight + v * kLanes);
      for (int r = 0; r < R; ++r)
        for (int p = 0; p < P; ++p)
          for (int v = 0; v < V; ++v) sums[r][p][v] += pixels[r][p * kPlane + c] * row[v];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) {
      float* pixel = to + r * result.row + p * result.pixel;
      if (width < V * kLanes) {
        std::memcpy(pixel, &sums[r][p][0], sizeof(float) * width);
      } else {
        for (int v = 0; v < V; ++v) Store(pixel + v * kLanes, sums[r][p][v]);
      }
    }
}

using BlockOf = decltype(&Block<1, 1, 1>);
template <int R, int V, int... P>
constexpr std::array<BlockOf, sizeof...(P)> BlocksOf(std::integer_sequence<int, P...>) {
  return {&Block<R, P + 1, V>...};
}

// Narrow results are computed several rows at a time, so that there are enough sums to keep the machine busy.
template <int R, int V>
void SumRows(const float* source, Index source_row, const std::vector<Tap>& taps, const float* weights,
             const Result& result, Index first, Index channel) {
  constexpr int kMost = (V == 1 ? kRegisters / 2 : (kRegisters - V - 4) / V) / R;
  if constexpr (kMost > 0) {
    static constexpr auto kBlocks = BlocksOf<R, V>(std::make_integer_sequence<int, kMost>());
    Index most = R > 1 && result.columns > kMost ? 0 : kMost;  // too wide for several rows
    Index even = most ? Ceil(result.columns, Ceil(result.columns, most)) : 0;
    for (; most && first + R <= result.rows; first += R)
      for (Index c = 0; c < result.columns; c += even)
        kBlocks[std::min(even, result.columns - c) - 1](
            source + first * source_row + c * kPlane, source_row, taps, weights, result,
            result.data + first * result.row + c * result.pixel + channel, result.width - channel);
  }
  if constexpr (R > 1) SumRows<R / 2, V>(source, source_row, taps, weights, result, first, channel);
}

template <int V>
void Sum(const float* source, Index source_row, const std::vector<Tap>& taps, const float* weights, Index weight_rows,
         const Result& result) {
  for (Index d = 0; d < result.width; d += V * kLanes, weights += weight_rows * V * kLanes)
    SumRows<4, V>(source, source_row, taps, weights, result, 0, d);
}

// Weights [rows, width] in the order in which they are read: blocks of columns, rows of each, zeros at the end.
struct Weights {
  Floats data;
  Index rows;
  int vectors;

  template <typename At>
  Weights(Index rows, Index width, Index columns, At at) : rows(rows) {
    Index needed = Ceil(width, kLanes);
    vectors = needed % 4 == 0 && (columns <= 6 || kLanes <= 4) ? 4 : needed % 2 == 0 ? 2 : 1;
    Index block = vectors * kLanes;
    data.assign(Ceil(width, block) * rows * block, 0.0f);
    for (Index d = 0; d < width; ++d)
      for (Index r = 0; r < rows; ++r) data[(d / block * rows + r) * block + d % block] = at(r, d);
  }

  void Sum(const float* source, Index source_row, const std::vector<Tap>& taps, const Result& result) const {
    auto run = vectors == 4 ? &::Sum<4> : vectors == 2 ? &::Sum<2> : &::Sum<1>;
    run(source, source_row, taps, data.data(), rows, result);
  }
};

// ---- the three operations ----

// Images [B, H, W, C] and results [B, R, S, D] of a convolution with a kernel [h, w, C, D].
struct Shape {
  Index batch, height, width, channels, rows, columns, outputs, kernel_rows, kernel_columns, stride, padding;

  Index weights() const { return kernel_rows * kernel_columns * channels; }
  Index image() const { return height * width * channels; }
  Index result() const { return rows * columns * outputs; }

  // A 1x1 kernel knows no rows: all pixels are lines of `length`, and what is left of them.
  bool has_lines() const { return weights() == channels && stride == 1 && padding == 0; }
  Shape Lines(Index count, Index length) const {
    Shape lines = *this;
    lines.batch = count, lines.height = lines.rows = 1, lines.width = lines.columns = length;
    return lines;
  }

  Planes Inputs() const {
    if (kernel_columns > 1 && kernel_columns * channels <= kPlane) {
      return {height, width, channels, padding, padding, (rows - 1) * stride + kernel_rows, columns, 1, stride, stride,
              kernel_columns};
    }
    return {height, width, channels, padding, padding, (rows - 1) * stride + kernel_rows,
            columns + (kernel_columns - 1) / stride, stride, kernel_rows, kernel_columns};
  }

  std::vector<Tap> Taps(const Planes& planes) const {
    std::vector<Tap> taps;
    for (Index i = 0; i < kernel_rows; ++i)
      for (Index j = 0; j < kernel_columns; j += planes.merged)
        for (Index q = 0; q < planes.planes(); ++q)
          taps.push_back({(q * planes.rows + i) * planes.row() + (j % stride * planes.columns + j / stride) * kPlane,
                          (i * kernel_columns + j) * channels + q * kPlane,
                          std::min<Index>(planes.depth() - q * kPlane, kPlane)});
    return taps;
  }
};

// Runs an operation on the images, or on the lines of pixels, that a shape describes.
template <typename Run>
void OnLines(const Shape& shape, Run run) {
  constexpr Index kLine = 96;
  if (!shape.has_lines()) return run(shape, 0);
  Index pixels = shape.batch * shape.height * shape.width, whole = pixels / kLine;
  if (whole) run(shape.Lines(whole, kLine), 0);
  if (pixels % kLine) run(shape.Lines(1, pixels % kLine), whole * kLine);
}

void Forward(const Shape& s, const float* x, const float* kernel, float* y) {
  Planes planes = s.Inputs();
  std::vector<Tap> taps = s.Taps(planes);
  Weights weights(s.weights(), s.outputs, s.columns, [&](Index r, Index d) { return kernel[r * s.outputs + d]; });
  Floats source(planes.size());
  for (Index b = 0; b < s.batch; ++b) {
    planes.Copy(x + b * s.image(), source.data());
    weights.Sum(source.data(), s.stride * planes.row(), taps,
                {y + b * s.result(), s.rows, s.columns, s.columns * s.outputs, s.outputs, s.outputs});
  }
}

// The rows (or columns) of g that meet row `start` of the image: entry i of the kernel meets (start + p - i) / s.
struct Met {
  Index entry, row;
};
std::vector<Met> MetBy(Index start, Index length, Index stride, Index padding) {
  std::vector<Met> met;
  for (Index i = 0; i < length; ++i)
    if ((start + padding - i) % stride == 0) met.push_back({i, (start + padding - i) / stride});
  return met;
}

void InputGradient(const Shape& s, const float* g, const float* kernel, float* x) {
  Index top = std::max<Index>(0, (s.kernel_rows - 1 - s.padding) / s.stride);
  Index left = std::max<Index>(0, (s.kernel_columns - 1 - s.padding) / s.stride);
  Index rows = top + std::max(s.rows, (s.height - 1 + s.padding) / s.stride + 1);
  Index columns = left + std::max(s.columns, (s.width - 1 + s.padding) / s.stride + 1);
  Planes planes{s.rows, s.columns, s.outputs, top, left, rows, columns, 1, 1, 1};
  Index entries = s.kernel_rows * s.kernel_columns;
  Weights weights(entries * s.outputs, s.channels, Ceil(s.width, s.stride), [&](Index r, Index c) {
    return kernel[(r / s.outputs * s.channels + c) * s.outputs + r % s.outputs];
  });
  std::vector<std::vector<Tap>> phases;
  for (Index a = 0; a < s.stride; ++a)
    for (Index b = 0; b < s.stride; ++b) {
      phases.emplace_back();
      for (Met i : MetBy(a, s.kernel_rows, s.stride, s.padding))
        for (Met j : MetBy(b, s.kernel_columns, s.stride, s.padding))
          for (Index q = 0; q < planes.planes(); ++q)
            phases.back().push_back({(q * rows + i.row + top) * planes.row() + (j.row + left) * kPlane,
                                     (i.entry * s.kernel_columns + j.entry) * s.outputs + q * kPlane,
                                     std::min<Index>(s.outputs - q * kPlane, kPlane)});
    }
  Floats source(planes.size());
  for (Index b = 0; b < s.batch; ++b) {
    planes.Copy(g + b * s.result(), source.data());
    for (Index phase = 0; phase < s.stride * s.stride; ++phase) {
      Index row = phase / s.stride, column = phase % s.stride;
      if (row >= s.height || column >= s.width) continue;
      weights.Sum(source.data(), planes.row(), phases[phase],
                  {x + b * s.image() + (row * s.width + column) * s.channels, Ceil(s.height - row, s.stride),
                   Ceil(s.width - column, s.stride), s.stride * s.width * s.channels, s.stride * s.channels,
                   s.channels});
    }
  }
}

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

// Adds the products of `depth` channels of x, at most a plane, with `width` channels of g.
template <int V>
void AddProducts(const Strip& strip, Index depth, Index width, const float* x, const float* g, float* to) {
  constexpr int kMost = kRegisters / 2 / V;  // 4, 8 or 16
  for (Index d = 0; d < width; d += V * kLanes)
    for (Index c = 0; c < depth; c += kMost) {
      Index left = depth - c;
      auto run = left <= 4                       ? &Products<4, V>
                 : left <= 8 && kMost >= 8       ? &Products<(kMost < 8 ? kMost : 8), V>
                 : left <= 12 && kMost >= 12     ? &Products<(kMost < 12 ? kMost : 12), V>
                                                 : &Products<kMost, V>;
      run(strip, x + c, g + d, to + c * width + d, width);
    }
}

// Adds to sums [taps, 16 planes, width], where width is D rounded up to vectors.
void KernelGradient(const Shape& s, const Planes& planes, const float* x, const float* g, Floats& sums, Index width) {
  std::vector<Tap> taps = s.Taps(planes);
  Index pixels = s.rows * s.columns, image = planes.size();
  Index group = std::clamp<Index>(kPixels / pixels, 1, s.batch), strip_rows = std::max<Index>(1, kPixels / s.columns);
  Floats source(group * image), padded(width == s.outputs ? 0 : group * pixels * width);
  for (Index b = 0; b < s.batch; b += group) {
    Index images = std::min(group, s.batch - b);
    const float* right = g + b * s.result();
    for (Index n = 0; n < images; ++n) planes.Copy(x + (b + n) * s.image(), source.data() + n * image);
    if (width != s.outputs) {
      for (Index n = 0; n < images * pixels; ++n)
        std::memcpy(&padded[n * width], right + n * s.outputs, sizeof(float) * s.outputs);
      right = padded.data();
    }
    for (Index r = 0; r < s.rows; r += strip_rows) {
      Strip strip{images,      std::min(strip_rows, s.rows - r), s.columns, image, s.stride * planes.row(),
                  pixels * width, width};
      auto add = width % (2 * kLanes) == 0 ? &AddProducts<2> : &AddProducts<1>;
      for (std::size_t t = 0; t < taps.size(); ++t)
        add(strip, taps[t].depth, width, source.data() + r * strip.x_row + taps[t].offset,
            right + r * s.columns * width, &sums[t * kPlane * width]);
    }
  }
}

void KernelGradient(const Shape& whole, const float* x, const float* g, float* kernel) {
  Planes planes = whole.Inputs();
  std::vector<Tap> taps = whole.Taps(planes);
  Index width = Ceil(whole.outputs, kLanes) * kLanes;
  Floats sums(taps.size() * kPlane * width);
  OnLines(whole, [&](const Shape& s, Index first) {
    KernelGradient(s, s.Inputs(), x + first * s.channels, g + first * s.outputs, sums, width);
  });
  for (std::size_t t = 0; t < taps.size(); ++t)
    for (Index c = 0; c < taps[t].depth; ++c)
      std::memcpy(kernel + (taps[t].weight + c) * whole.outputs, &sums[(t * kPlane + c) * width],
                  sizeof(float) * whole.outputs);
}

// ---- what XLA calls ----

namespace ffi = xla::ffi;
using Input = ffi::Buffer<ffi::F32, 4>;
using Output = ffi::Result<ffi::Buffer<ffi::F32, 4>>;

template <typename Images, typename Kernel, typename Results>
ffi::ErrorOr<Shape> ShapeOf(Images& x, Kernel& kernel, Results& y, Index stride, Index padding) {
  auto a = x.dimensions(), k = kernel.dimensions(), b = y.dimensions();
  Shape s{a[0], a[1], a[2], a[3], b[1], b[2], b[3], k[0], k[1], stride, padding};
  bool positive = stride > 0 && padding >= 0 && s.batch > 0 && s.image() > 0 && s.result() > 0 && s.weights() > 0;
  bool agrees = positive && b[0] == a[0] && k[2] == a[3] && k[3] == b[3] &&
                s.height + 2 * padding >= s.kernel_rows && s.width + 2 * padding >= s.kernel_columns &&
                b[1] == (s.height + 2 * padding - s.kernel_rows) / stride + 1 &&
                b[2] == (s.width + 2 * padding - s.kernel_columns) / stride + 1;
  if (!agrees) return ffi::Unexpected(ffi::Error::InvalidArgument("shapes of a convolution do not agree"));
  return s;
}

ffi::Error RunForward(Input x, Input kernel, Output y, Index stride, Index padding) {
  auto shape = ShapeOf(x, kernel, *y, stride, padding);
  if (!shape) return shape.error();
  Forward(*shape, x.typed_data(), kernel.typed_data(), y->typed_data());
  return ffi::Error::Success();
}

ffi::Error RunInputGradient(Input g, Input kernel, Output x, Index stride, Index padding) {
  auto shape = ShapeOf(*x, kernel, g, stride, padding);
  if (!shape) return shape.error();
  InputGradient(*shape, g.typed_data(), kernel.typed_data(), x->typed_data());
  return ffi::Error::Success();
}

ffi::Error RunKernelGradient(Input x, Input g, Output kernel, Index stride, Index padding) {
  auto shape = ShapeOf(x, *kernel, g, stride, padding);
  if (!shape) return shape.error();
  KernelGradient(*shape, x.typed_data(), g.typed_data(), kernel->typed_data());
  return ffi::Error::Success();
}

auto Binding() {
  return ffi::Ffi::Bind().Arg<Input>().Arg<Input>().Ret<ffi::Buffer<ffi::F32, 4>>().Attr<Index>("stride").Attr<Index>(
      "padding");
}

// Any number of axes may stand before those of one model: vmap's.
using Array = ffi::Buffer<ffi::F32>;
using Arrays = ffi::Result<Array>;

ffi::ErrorOr<NormShape> NormShapeOf(const Array& x, const Array& scale) {
  auto images = x.dimensions(), scales = scale.dimensions();
  if (images.size() < 4 || scales.size() + 3 != images.size() || !x.element_count())
    return ffi::Unexpected(ffi::Error::InvalidArgument("arrays of an EvoNorm must be images, scale and bias"));
  Index channels = images.back(), models = static_cast<Index>(scale.element_count()) / std::max<Index>(scales.back(), 1);
  Index batch = images[images.size() - 4], pixels = images[images.size() - 3] * images[images.size() - 2];
  NormShape s{models, batch, pixels, channels};
  if (scales.back() != channels || models * batch * s.image() != static_cast<Index>(x.element_count()) || !s.is_whole())
    return ffi::Unexpected(ffi::Error::InvalidArgument("shapes of an EvoNorm do not agree"));
  return s;
}

ffi::Error RunEvoNorm(Array x, Array scale, Array bias, Arrays y, Arrays mean, Arrays deviation) {
  auto shape = NormShapeOf(x, scale);
  if (!shape) return shape.error();
  EvoNormForward(*shape, x.typed_data(), scale.typed_data(), bias.typed_data(), y->typed_data(), mean->typed_data(),
                 deviation->typed_data());
  return ffi::Error::Success();
}

ffi::Error RunEvoNormGradients(Array x, Array scale, Array mean, Array deviation, Array g, Arrays dx, Arrays dscale,
                               Arrays dbias) {
  auto shape = NormShapeOf(x, scale);
  if (!shape) return shape.error();
  EvoNormBackward(*shape, x.typed_data(), scale.typed_data(), mean.typed_data(), deviation.typed_data(),
                  g.typed_data(), dx->typed_data(), dscale->typed_data(), dbias->typed_data());
  return ffi::Error::Success();
}

auto NormBinding() { return ffi::Ffi::Bind().Arg<Array>().Arg<Array>().Arg<Array>(); }

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(forward, RunForward, Binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(input_gradient, RunInputGradient, Binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(kernel_gradient, RunKernelGradient, Binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(evonorm, RunEvoNorm, NormBinding().Ret<Array>().Ret<Array>().Ret<Array>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(evonorm_gradients, RunEvoNormGradients,
                              NormBinding().Arg<Array>().Arg<Array>().Ret<Array>().Ret<Array>().Ret<Array>());
