// Kernels of our own for one core of a CPU, as functions that XLA calls: convolutions and EvoNorm, with their gradients.
//
// There is no state, no thread and no random order: the same call gives the same bits. Vectors are those of GCC and
// Clang, as wide as the machine's.

#include "native_convolution.h"
#include "native_evonorm.h"
#include "native_winograd.h"
#include "xla/ffi/api/ffi.h"

namespace {

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
  (TakesTiles(*shape) ? ForwardByTiles : Forward)(*shape, x.typed_data(), kernel.typed_data(), y->typed_data());
  return ffi::Error::Success();
}

ffi::Error RunInputGradient(Input g, Input kernel, Output x, Index stride, Index padding) {
  auto shape = ShapeOf(*x, kernel, g, stride, padding);
  if (!shape) return shape.error();
  (TakesTiles(*shape) ? InputGradientByTiles : InputGradient)(*shape, g.typed_data(), kernel.typed_data(), x->typed_data());
  return ffi::Error::Success();
}

ffi::Error RunKernelGradient(Input x, Input g, Output kernel, Index stride, Index padding) {
  auto shape = ShapeOf(x, *kernel, g, stride, padding);
  if (!shape) return shape.error();
  (TakesTiles(*shape) ? KernelGradientByTiles : KernelGradient)(*shape, x.typed_data(), g.typed_data(), kernel->typed_data());
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
