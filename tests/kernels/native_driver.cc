// Runs native.cc on buffers of exactly the right size, for sanitizers: every read or write beyond them is found.

#include <cstdio>

#include "native.cc"

int main() {
  const Index sizes[][2] = {{1, 1}, {2, 3}, {5, 4}, {9, 8}, {6, 33}}, windows[][2] = {{1, 0}, {3, 1}, {3, 0}, {5, 6}};
  double total = 0;
  int count = 0;
  for (auto [height, width] : sizes)
    for (auto [length, padding] : windows)
      for (Index stride : {1, 2})
        for (Index channels : {1, 3, 16, 21})
          for (Index outputs : {1, 23, 64})
            for (Index batch : {1, 3}) {
              Index tall = height + 2 * padding - length, wide = width + 2 * padding - length;
              if (tall < 0 || wide < 0) continue;
              Shape s{batch, height, width, channels, tall / stride + 1, wide / stride + 1, outputs, length, length, stride, padding};
              Floats x(batch * s.image(), 1.0f), kernel(s.weights() * outputs, 0.5f), y(batch * s.result());
              Forward(s, x.data(), kernel.data(), y.data());
              InputGradient(s, y.data(), kernel.data(), x.data());
              KernelGradient(s, x.data(), y.data(), kernel.data());
              total += kernel[0];
              ++count;
            }
  for (auto [height, width] : {std::pair<Index, Index>{2, 2}, {4, 10}, {16, 6}})
    for (Index channels : {16, 48})
      for (Index outputs : {16, 32})
        for (Index batch : {1, 3, 67}) {
          Shape s{batch, height, width, channels, height, width, outputs, 3, 3, 1, 1};
          Floats x(batch * s.image(), 1.0f), kernel(s.weights() * outputs, 0.5f), y(batch * s.result());
          ForwardByTiles(s, x.data(), kernel.data(), y.data());
          InputGradientByTiles(s, y.data(), kernel.data(), x.data());
          KernelGradientByTiles(s, x.data(), y.data(), kernel.data());
          total += kernel[0];
          ++count;
        }
  for (Index pixels : {1, 2, 6, 35})
    for (Index channels : {8, 16, 24, 32, 64})
      for (Index models : {1, 2}) {
        NormShape s{models, 3, pixels, channels};
        if (!s.is_whole()) continue;
        Index images = models * s.batch;
        Floats x(images * s.image(), 0.5f), y(x), dx(x), scale(models * channels, 2.0f), bias(scale), dscale(scale);
        Floats mean(images * channels), deviation(mean), dbias(scale);
        EvoNormForward(s, x.data(), scale.data(), bias.data(), y.data(), mean.data(), deviation.data());
        EvoNormBackward(s, x.data(), scale.data(), mean.data(), deviation.data(), y.data(), dx.data(), dscale.data(),
                        dbias.data());
        total += dx[0];
        ++count;
      }
  std::printf("%d kernels, %g\n", count, total);
}
