// 3x3 convolutions of stride 1 by Winograd's algorithm F(2x2, 3x3) (Lavin and Gray, 2016), for one core of a CPU.
//
// A tile of 2 x 2 results needs 4 x 4 numbers of x. Transformed, its 36 products become 16, one for each position of
// the 4 x 4, and what is summed over channels is a product of matrices for each position by itself:
//
//   forward          y  = A^T [sum over c of (G k G^T) (B^T x B)] A
//   input gradient   the same with the kernel turned by 180 degrees, and its channels exchanged
//   kernel gradient  dk = G^T [sum over tiles of (B^T x B) (A g A^T)] G
//
// The transforms only add numbers (and halve those of the kernel), so rounding errors are a few times those of plain sums.

#ifndef SADDLE_JAX_MODELS_NATIVE_WINOGRAD_H_
#define SADDLE_JAX_MODELS_NATIVE_WINOGRAD_H_

#include "native_convolution.h"

namespace {

constexpr Index kPositions = 16;
constexpr Index kFewestTiles = 64, kLargestKernel = 8192;
constexpr Index kTiles = 32;  // that are transformed at a time: they and their products stay in the caches

// Whether a convolution can be computed by tiles, and is faster so. Tiles must cover results and images, and planes the
// channels, without a rest. There must be enough of them to make up for the kernel's transform, which the caches must
// hold.
bool TakesTiles(const Shape& s) {
  const bool fits = s.kernel_rows == 3 && s.kernel_columns == 3 && s.stride == 1 && s.padding == 1 &&
                    s.rows % 2 == 0 && s.columns % 2 == 0 && s.channels % kPlane == 0 && s.outputs % kPlane == 0;
  return fits && s.batch * s.rows * s.columns >= 4 * kFewestTiles && s.channels * s.outputs <= kLargestKernel;
}

// ---- the kernel: U = G k G^T, positions [16, C, D] ----

Floats TransformedKernel(const float* kernel, Index size) {
  Floats result(kPositions * size);
  for (Index n = 0; n < size; n += kLanes) {
    Vector rows[4][3];
    for (int j = 0; j < 3; ++j) {
      Vector first = Load(kernel + j * size + n), middle = Load(kernel + (3 + j) * size + n);
      Vector last = Load(kernel + (6 + j) * size + n), ends = (first + last) * 0.5f, half = middle * 0.5f;
      rows[0][j] = first, rows[1][j] = ends + half, rows[2][j] = ends - half, rows[3][j] = last;
    }
    for (int i = 0; i < 4; ++i) {
      Vector ends = (rows[i][0] + rows[i][2]) * 0.5f, half = rows[i][1] * 0.5f;
      const Vector columns[4] = {rows[i][0], ends + half, ends - half, rows[i][2]};
      for (int j = 0; j < 4; ++j) Store(&result[(4 * i + j) * size + n], columns[j]);
    }
  }
  return result;
}

// The kernel's gradient G^T U G, of sums [16, C, D].
void KernelOf(const Floats& sums, Index size, float* kernel) {
  for (Index n = 0; n < size; n += kLanes) {
    Vector rows[3][4];
    for (int j = 0; j < 4; ++j) {
      Vector u[4];
      for (int i = 0; i < 4; ++i) u[i] = Load(&sums[(4 * i + j) * size + n]);
      Vector both = (u[1] + u[2]) * 0.5f;
      rows[0][j] = u[0] + both, rows[1][j] = (u[1] - u[2]) * 0.5f, rows[2][j] = both + u[3];
    }
    for (int i = 0; i < 3; ++i) {
      Vector both = (rows[i][1] + rows[i][2]) * 0.5f;
      Store(kernel + 3 * i * size + n, rows[i][0] + both);
      Store(kernel + (3 * i + 1) * size + n, (rows[i][1] - rows[i][2]) * 0.5f);
      Store(kernel + (3 * i + 2) * size + n, both + rows[i][3]);
    }
  }
}

// ---- tiles ----

// B^T of one column of four numbers.
inline void TransformColumn(const float* from, Index row, Vector (&to)[4]) {
  Vector a = Load(from), b = Load(from + row), c = Load(from + 2 * row), d = Load(from + 3 * row);
  to[0] = a - c, to[1] = b + c, to[2] = c - b, to[3] = b - d;
}

// Writes B^T x B of a line of tiles of one plane: tile t of position p to [p pitch + 16 t].
void TransformInputs(const float* from, Index row, Index tiles, float* to, Index pitch) {
  for (Index lane = 0; lane < kPlane; lane += kLanes) {
    Vector a[4], b[4], c[4], d[4];
    TransformColumn(from + lane, row, a);
    TransformColumn(from + lane + kPlane, row, b);
    for (Index t = 0; t < tiles; ++t) {
      TransformColumn(from + lane + (2 * t + 2) * kPlane, row, c);
      TransformColumn(from + lane + (2 * t + 3) * kPlane, row, d);
      float* tile = to + lane + t * kPlane;
      for (int i = 0; i < 4; ++i, tile += 4 * pitch) {
        Store(tile, a[i] - c[i]), Store(tile + pitch, b[i] + c[i]);
        Store(tile + 2 * pitch, c[i] - b[i]), Store(tile + 3 * pitch, b[i] - d[i]);
        a[i] = c[i], b[i] = d[i];
      }
    }
  }
}

// Writes A^T m A of a line of tiles of D channels, m [16, tiles, D] with `pitch` between positions, to two rows of y.
void TransformOutputs(const float* from, Index pitch, Index tiles, Index channels, float* y, Index row) {
  for (Index t = 0; t < tiles; ++t, from += channels, y += 2 * channels)
    for (Index n = 0; n < channels; n += kLanes) {
      Vector upper[4], lower[4];
      for (int j = 0; j < 4; ++j) {
        const float* column = from + j * pitch + n;
        Vector a = Load(column), b = Load(column + 4 * pitch), c = Load(column + 8 * pitch);
        upper[j] = a + (b + c), lower[j] = (b - c) - Load(column + 12 * pitch);
      }
      Store(y + n, upper[0] + (upper[1] + upper[2]));
      Store(y + channels + n, (upper[1] - upper[2]) - upper[3]);
      Store(y + row + n, lower[0] + (lower[1] + lower[2]));
      Store(y + row + channels + n, (lower[1] - lower[2]) - lower[3]);
    }
}

// Writes A g A^T of a line of tiles: two rows of g to positions [16, tiles, D] with `pitch` between them.
void TransformGradients(const float* g, Index row, Index tiles, Index channels, float* to, Index pitch) {
  for (Index t = 0; t < tiles; ++t, g += 2 * channels, to += channels)
    for (Index n = 0; n < channels; n += kLanes) {
      Vector rows[4][2];
      for (int j = 0; j < 2; ++j) {
        Vector upper = Load(g + j * channels + n), lower = Load(g + row + j * channels + n);
        rows[0][j] = upper, rows[1][j] = upper + lower, rows[2][j] = upper - lower, rows[3][j] = -lower;
      }
      for (int i = 0; i < 4; ++i) {
        float* position = to + 4 * i * pitch + n;
        Store(position, rows[i][0]), Store(position + pitch, rows[i][0] + rows[i][1]);
        Store(position + 2 * pitch, rows[i][0] - rows[i][1]), Store(position + 3 * pitch, -rows[i][1]);
      }
    }
}

// The tiles of some lines of images in planes, transformed.
struct Tiles {
  const Shape& s;
  Planes planes;
  Index down, across, group, lines_at_once;  // tiles of an image; images in planes; lines that are transformed
  Floats source, inputs;

  explicit Tiles(const Shape& s)
      : s(s),
        planes{s.height, s.width, s.channels, s.padding, s.padding, s.rows + 2, s.columns + 2, 1, 3, 3},
        down(s.rows / 2),
        across(s.columns / 2),
        group(std::clamp<Index>(kTiles / (down * across), 1, s.batch)),
        lines_at_once(std::clamp<Index>(kTiles / across, 1, group * down)),
        source(group * planes.size()),
        inputs(kPositions * pitch()) {}

  Index most() const { return lines_at_once * across; }
  // Between positions of `inputs` [16, C / 16, tiles, 16]; a multiple of 4096 bytes would keep them from one cache.
  Index pitch() const { return most() * s.channels + kPlane; }

  // Transforms all of x, and calls use(first image, line of it, lines) for each part.
  template <typename Use>
  void ForEach(const float* x, Use use) {
    for (Index b = 0; b < s.batch; b += group) {
      const Index images = std::min(group, s.batch - b);
      for (Index n = 0; n < images; ++n) planes.Copy(x + (b + n) * s.image(), &source[n * planes.size()]);
      for (Index first = 0; first < images * down; first += lines_at_once) {
        const Index lines = std::min(lines_at_once, images * down - first);
        for (Index line = 0; line < lines; ++line) Transform(first + line, line);
        use(b, first, lines);
      }
    }
  }

 private:
  void Transform(Index line, Index place) {
    const float* from = &source[line / down * planes.size() + 2 * (line % down) * planes.row()];
    for (Index q = 0; q < planes.planes(); ++q)
      TransformInputs(from + q * planes.plane(), planes.row(), across,
                      &inputs[(q * most() + place * across) * kPlane], pitch());
  }
};

// ---- the three operations ----

// Computes y from transformed kernels [C, D], one for each position.
void ForwardTiles(const Shape& s, const float* x, const std::vector<Weights>& weights, float* y) {
  Tiles tiles(s);
  const Index pitch = tiles.most() * s.outputs + kPlane, row = s.columns * s.outputs;
  Floats products(kPositions * pitch);
  std::vector<Tap> taps;
  for (Index q = 0; q < tiles.planes.planes(); ++q) taps.push_back({q * tiles.most() * kPlane, q * kPlane, kPlane});
  const std::vector<Line> whole{{0, 0}};
  tiles.ForEach(x, [&](Index image, Index first, Index lines) {
    for (Index p = 0; p < kPositions; ++p)
      weights[p].Sum({&tiles.inputs[p * tiles.pitch()], whole, taps, &products[p * pitch], lines * tiles.across,
                      s.outputs, s.outputs});
    for (Index line = 0; line < lines; ++line)
      TransformOutputs(&products[line * tiles.across * s.outputs], pitch, tiles.across, s.outputs,
                       y + image * s.result() + (first + line) * 2 * row, row);
  });
}

void ForwardByTiles(const Shape& s, const float* x, const float* kernel, float* y) {
  const Floats transformed = TransformedKernel(kernel, s.channels * s.outputs);
  std::vector<Weights> weights(kPositions, {s.channels, s.outputs});
  for (Index p = 0; p < kPositions; ++p) weights[p].Take(0, s.channels, &transformed[p * s.channels * s.outputs]);
  ForwardTiles(s, x, weights, y);
}

void InputGradientByTiles(const Shape& s, const float* g, const float* kernel, float* x) {
  const Floats transformed = TransformedKernel(kernel, s.channels * s.outputs);
  std::vector<Weights> weights(kPositions, {s.outputs, s.channels});
  const Index turned[] = {3, 1, 2, 0};  // what turning the kernel does to positions
  for (Index p = 0; p < kPositions; ++p)
    weights[4 * turned[p / 4] + turned[p % 4]].TakeTransposed(0, s.outputs,
                                                              &transformed[p * s.channels * s.outputs]);
  ForwardTiles({s.batch, s.rows, s.columns, s.outputs, s.height, s.width, s.channels, 3, 3, 1, 2 - s.padding}, g, weights,
               x);
}

void KernelGradientByTiles(const Shape& s, const float* x, const float* g, float* kernel) {
  Tiles tiles(s);
  const Index pitch = tiles.most() * s.outputs + kPlane, row = s.columns * s.outputs, size = s.channels * s.outputs;
  Floats gradients(kPositions * pitch), sums(kPositions * size);
  tiles.ForEach(x, [&](Index image, Index first, Index lines) {
    for (Index line = 0; line < lines; ++line)
      TransformGradients(g + image * s.result() + (first + line) * 2 * row, row, tiles.across, s.outputs,
                         &gradients[line * tiles.across * s.outputs], pitch);
    const Strip strip{1, 1, lines * tiles.across, 0, 0, 0, s.outputs};
    for (Index p = 0; p < kPositions; ++p)
      for (Index q = 0; q < tiles.planes.planes(); ++q)
        AddProducts(strip, kPlane, s.outputs, &tiles.inputs[p * tiles.pitch() + q * tiles.most() * kPlane],
                    &gradients[p * pitch], &sums[p * size + q * kPlane * s.outputs]);
  });
  KernelOf(sums, size, kernel);
}

}  // namespace

#endif  // SADDLE_JAX_MODELS_NATIVE_WINOGRAD_H_
