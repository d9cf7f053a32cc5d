// GELU by tanh of float32 rows plus a bias, forward and backward: one exponential for each element.
//
// Handlers are called by whatever program names them, so they look at every shape before they touch memory.

#include <algorithm>
#include <string>

#include "arrays.h"
#include "elementwise.h"
#include "rows.h"
#include "scratch.h"

namespace ffi = xla::ffi;

namespace pcp {
namespace {

ffi::Error refused(const std::string& words) {
  return refused_by("gelu", words);
}

// Calls `of(x + bias, cotangent)` for all lanes of all rows; without a cotangent it is given x once more.
template <typename Function>
void over_rows(ffi::ThreadPool& pool, const Array& x, const Array& bias, const Array& cotangent, Result& y,
               const Function& of) {
  const int64_t rows = x.dimensions()[0], width = x.dimensions()[1], whole = width / kLanes * kLanes;
  const float *from = x.typed_data(), *b = bias.typed_data(), *g = cotangent.typed_data();
  float* to = y->typed_data();
  ask_for_huge_pages_of(y);
  parallel_for(pool, width ? rows : 0, rows_at_once(width), [&](int64_t first, int64_t last) {
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

PCP_HANDLER(pcp_gelu, pcp::gelu);
PCP_HANDLER(pcp_gelu_gradient, pcp::gelu_gradient);
