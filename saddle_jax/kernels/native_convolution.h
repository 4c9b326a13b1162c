// Convolutions of images [B, H, W, C] with a kernel [h, w, C, D], and their two gradients, for one core of a CPU.
//
//   forward          y[b, r, c, :] = sum over i, j of x[b, r s + i - p, c s + j - p, :] kernel[i, j, :, :]
//   input gradient   the same with the kernel transposed, for each of the s x s phases of the result by itself
//   kernel gradient  for each entry of the kernel, the sum over pixels of products of x and g

#ifndef SADDLE_JAX_MODELS_NATIVE_CONVOLUTION_H_
#define SADDLE_JAX_MODELS_NATIVE_CONVOLUTION_H_

#include "native_planes.h"

namespace {

constexpr Index kLinesAtOnce = 24;  // of several images, where one has fewer
constexpr Index kPixels = 128;      // that a kernel gradient sums in registers before it adds them in memory

// Images [B, H, W, C] and results [B, R, S, D] of a convolution with a kernel [h, w, C, D].
struct Shape {
  Index batch, height, width, channels, rows, columns, outputs, kernel_rows, kernel_columns, stride, padding;

  Index entries() const { return kernel_rows * kernel_columns; }
  Index weights() const { return entries() * channels; }
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
          taps.push_back({q * planes.plane() + i * planes.row() + (j % stride * planes.columns + j / stride) * kPlane,
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

// The lines of `images` images, each of `rows` rows.
std::vector<Line> LinesOf(Index images, Index rows, Line image, Line row) {
  std::vector<Line> lines;
  for (Index b = 0; b < images; ++b)
    for (Index r = 0; r < rows; ++r)
      lines.push_back({b * image.from + r * row.from, b * image.to + r * row.to});
  return lines;
}

void Forward(const Shape& s, const float* x, const float* kernel, float* y) {
  const Planes planes = s.Inputs();
  const std::vector<Tap> taps = s.Taps(planes);
  Weights weights(s.weights(), s.outputs);
  weights.Take(0, s.weights(), kernel);
  const Index group = std::clamp<Index>(kLinesAtOnce / s.rows, 1, s.batch), row = s.columns * s.outputs;
  Floats source(group * planes.size());
  for (Index b = 0; b < s.batch; b += group) {
    const Index images = std::min(group, s.batch - b);
    for (Index n = 0; n < images; ++n) planes.Copy(x + (b + n) * s.image(), &source[n * planes.size()]);
    const auto lines = LinesOf(images, s.rows, {planes.size(), s.result()}, {s.stride * planes.row(), row});
    weights.Sum({source.data(), lines, taps, y + b * s.result(), s.columns, s.outputs, s.outputs});
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

// The planes of g, and for each phase of the result the taps that meet it.
struct Phases {
  Planes planes;
  std::vector<std::vector<Tap>> taps;

  explicit Phases(const Shape& s) {
    Index top = std::max<Index>(0, (s.kernel_rows - 1 - s.padding) / s.stride);
    Index left = std::max<Index>(0, (s.kernel_columns - 1 - s.padding) / s.stride);
    Index rows = top + std::max(s.rows, (s.height - 1 + s.padding) / s.stride + 1);
    Index columns = left + std::max(s.columns, (s.width - 1 + s.padding) / s.stride + 1);
    planes = {s.rows, s.columns, s.outputs, top, left, rows, columns, 1, 1, 1};
    for (Index phase = 0; phase < s.stride * s.stride; ++phase) {
      taps.emplace_back();
      for (Met i : MetBy(phase / s.stride, s.kernel_rows, s.stride, s.padding))
        for (Met j : MetBy(phase % s.stride, s.kernel_columns, s.stride, s.padding))
          for (Index q = 0; q < planes.planes(); ++q)
            taps.back().push_back({q * planes.plane() + (i.row + top) * planes.row() + (j.row + left) * kPlane,
                                   (i.entry * s.kernel_columns + j.entry) * s.outputs + q * kPlane,
                                   std::min<Index>(s.outputs - q * kPlane, kPlane)});
    }
  }
};

void InputGradient(const Shape& s, const float* g, const float* kernel, float* x) {
  const Phases phases(s);
  const Planes& planes = phases.planes;
  Weights weights(s.entries() * s.outputs, s.channels);
  for (Index entry = 0; entry < s.entries(); ++entry)
    weights.TakeTransposed(entry * s.outputs, s.outputs, kernel + entry * s.channels * s.outputs);
  const Index group = std::clamp<Index>(kLinesAtOnce * s.stride / s.height, 1, s.batch);
  const Index row = s.stride * s.width * s.channels;
  Floats source(group * planes.size());
  for (Index b = 0; b < s.batch; b += group) {
    const Index images = std::min(group, s.batch - b);
    for (Index n = 0; n < images; ++n) planes.Copy(g + (b + n) * s.result(), &source[n * planes.size()]);
    for (Index phase = 0; phase < s.stride * s.stride; ++phase) {
      const Index first = phase / s.stride, column = phase % s.stride;
      if (first >= s.height || column >= s.width) continue;
      const auto lines =
          LinesOf(images, Ceil(s.height - first, s.stride), {planes.size(), s.image()}, {planes.row(), row});
      weights.Sum({source.data(), lines, phases.taps[phase],
                   x + b * s.image() + (first * s.width + column) * s.channels, Ceil(s.width - column, s.stride),
                   s.stride * s.channels, s.channels});
    }
  }
}

// Adds to sums [taps, 16 planes, width], where width is D rounded up to vectors.
void AddKernelGradient(const Shape& s, const float* x, const float* g, Floats& sums, Index width) {
  const Planes planes = s.Inputs();
  const std::vector<Tap> taps = s.Taps(planes);
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
      for (std::size_t t = 0; t < taps.size(); ++t)
        AddProducts(strip, taps[t].depth, width, source.data() + r * strip.x_row + taps[t].offset,
                    right + r * s.columns * width, &sums[t * kPlane * width]);
    }
  }
}

void KernelGradient(const Shape& whole, const float* x, const float* g, float* kernel) {
  const std::vector<Tap> taps = whole.Taps(whole.Inputs());
  Index width = Ceil(whole.outputs, kLanes) * kLanes;
  Floats sums(taps.size() * kPlane * width);
  OnLines(whole, [&](const Shape& s, Index first) {
    AddKernelGradient(s, x + first * s.channels, g + first * s.outputs, sums, width);
  });
  for (std::size_t t = 0; t < taps.size(); ++t)
    for (Index c = 0; c < taps[t].depth; ++c)
      std::memcpy(kernel + (taps[t].weight + c) * whole.outputs, &sums[(t * kPlane + c) * width],
                  sizeof(float) * whole.outputs);
}

}  // namespace

#endif  // SADDLE_JAX_MODELS_NATIVE_CONVOLUTION_H_
