// GELU by tanh of float32 rows plus a bias, forward and backward: one exponential for each element.
//
// Handlers are called by whatever program names them, so they look at every shape before they touch memory.

#include <algorithm>
#include <limits>
#include <string>

#include "arrays.h"
#include "rows.h"

namespace ffi = xla::ffi;

namespace pcp {
namespace {

typedef int32_t Integers __attribute__((vector_size(kLanes * sizeof(int32_t))));

constexpr int64_t kGrain = 1 << 14;  // elements of a part of the work at least: about ten microseconds
constexpr float kCubic = 0.044715f, kScale = 1.5957691216f;  // of the cube, and twice the root of 2 / pi

ffi::Error refused(const std::string& words) {
  return refused_by("gelu", words);
}

// e^x to two units in the last place, infinite from 88 on. Source: Moshier, "Cephes mathematical library", expf.
inline Lanes exponential(Lanes x) {
  const Lanes bounded = x < -87.0f ? Lanes{} - 87.0f : x > 88.0f ? Lanes{} + 88.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: what is added to it has no fraction left
  const Lanes shifted = bounded * 1.44269504088896341f + kRound;
  const Lanes n = shifted - kRound;
  const Lanes r = bounded - n * 0.693359375f + n * 2.12194440e-4f;
  Lanes p = Lanes{} + 1.9875691500e-4f;
  for (float next : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = p * r + next;
  p = p * r * r + r + 1.0f;
  Integers power;
  std::memcpy(&power, &shifted, sizeof power);
  power = (power - 0x4B400000 + 127) << 23;
  Lanes scale;
  std::memcpy(&scale, &power, sizeof scale);
  return x > 88.0f ? Lanes{} + std::numeric_limits<float>::infinity() : p * scale;
}

// 1 + tanh(y) is 2 / (1 + e^(-2y)), so GELU is x / (1 + e^(-2y)) with y = sqrt(2 / pi) (x + 0.044715 x^3).
inline Lanes decay(Lanes x) { return exponential(x * (1.0f + kCubic * x * x) * -kScale); }

inline Lanes gelu_of(Lanes x) { return x / (1.0f + decay(x)); }

inline Lanes slope_of(Lanes x) {
  const Lanes share = 1.0f / (1.0f + decay(x));
  return share + x * share * (1.0f - share) * kScale * (1.0f + 3.0f * kCubic * x * x);
}

// Calls `of(x + bias, cotangent)` for all lanes of all rows; without a cotangent it is given x once more.
template <typename Function>
void over_rows(ffi::ThreadPool& pool, const Array& x, const Array& bias, const Array& cotangent, Result& y,
               const Function& of) {
  const int64_t rows = x.dimensions()[0], width = x.dimensions()[1], whole = width / kLanes * kLanes;
  const float *from = x.typed_data(), *b = bias.typed_data(), *g = cotangent.typed_data();
  float* to = y->typed_data();
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width));
  parallel_for(pool, width ? rows : 0, grain, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const int64_t at = row * width, rest = width - whole;
      for (int64_t i = 0; i < whole; i += kLanes) store(to + at + i, of(load(from + at + i) + load(b + i), load(g + at + i)));
      if (rest) {
        const Lanes made = of(load_part(from + at + whole, rest) + load_part(b + whole, rest), load_part(g + at + whole, rest));
        std::memcpy(to + at + whole, &made, rest * sizeof(float));
      }
    }
  });
}

std::string complaint(const Array& x, const Array& bias, const Array& y) {
  if (x.dimensions().size() != 2) return "x has shape " + shape_of(x) + "; expected [rows,width]";
  if (!is_shape(bias, {x.dimensions()[1]}))
    return "bias has shape " + shape_of(bias) + "; expected [" + std::to_string(x.dimensions()[1]) + "]";
  if (!is_shape(y, {x.dimensions()[0], x.dimensions()[1]}))
    return "the result has shape " + shape_of(y) + "; expected that of x";
  return "";
}

ffi::Error gelu(ffi::ThreadPool pool, Array x, Array bias, Result y) {
  if (auto words = complaint(x, bias, *y); !words.empty()) return refused(words);
  over_rows(pool, x, bias, x, y, [](Lanes value, Lanes) { return gelu_of(value); });
  return ffi::Error::Success();
}

ffi::Error gelu_gradient(ffi::ThreadPool pool, Array x, Array bias, Array cotangent, Result y) {
  if (auto words = complaint(x, bias, *y); !words.empty()) return refused(words);
  if (!is_shape(cotangent, {x.dimensions()[0], x.dimensions()[1]}))
    return refused("the cotangent has shape " + shape_of(cotangent) + "; expected that of x");
  over_rows(pool, x, bias, cotangent, y, [](Lanes value, Lanes g) { return g * slope_of(value); });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace pcp

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    pcp_gelu, pcp::gelu,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<pcp::Array>().Arg<pcp::Array>().Ret<pcp::Array>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(pcp_gelu_gradient, pcp::gelu_gradient,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<pcp::Array>()
                                  .Arg<pcp::Array>()
                                  .Arg<pcp::Array>()
                                  .Ret<pcp::Array>());
