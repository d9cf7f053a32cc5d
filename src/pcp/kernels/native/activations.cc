// Activations of float32 rows plus a bias, and of gates times what they let pass, forward and backward: one exponential for each element.
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

// Calls `of(at, count)` for all lanes of so many numbers, which begin at `at` and of which `count` are left.
template <typename Function>
void over_numbers(ffi::ThreadPool& pool, int64_t size, const Function& of) {
  parallel_for(pool, (size + kLanes - 1) / kLanes, rows_at_once(kLanes), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) of(i * kLanes, size - i * kLanes);
  });
}

std::string complaint(int64_t activation) {
  if (activation < 0 || activation >= static_cast<int64_t>(Activation::count))
    return "there is no activation " + std::to_string(activation);
  return "";
}

std::string complaint(const Array& x, const Array& bias, const Array& y, int64_t activation) {
  if (x.dimensions().size() != 2) return "x has shape " + shape_of(x) + "; expected [rows,width]";
  if (!is_shape(bias, {x.dimensions()[1]}))
    return "bias has shape " + shape_of(bias) + "; expected [" + std::to_string(x.dimensions()[1]) + "]";
  if (!is_shape(y, {x.dimensions()[0], x.dimensions()[1]}))
    return "the result has shape " + shape_of(y) + "; expected that of x";
  return complaint(activation);
}

std::string unlike(const char* name, const Array& array, const Array& gate) {
  const auto a = array.dimensions(), b = gate.dimensions();
  if (a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin())) return "";
  return std::string(name) + " has shape " + shape_of(array) + "; expected that of the gate, " + shape_of(gate);
}

ffi::Error gelu(ffi::ThreadPool pool, Array x, Array bias, Result y, int64_t activation) {
  if (auto words = complaint(x, bias, *y, activation); !words.empty()) return refused(words);
  const auto by = static_cast<Activation>(activation);
  over_rows(pool, x, bias, x, y, [by](Lanes value, Lanes) { return activated(by, value); });
  return ffi::Error::Success();
}

ffi::Error gelu_gradient(ffi::ThreadPool pool, Array x, Array bias, Array cotangent, Result y, int64_t activation) {
  if (auto words = complaint(x, bias, *y, activation); !words.empty()) return refused(words);
  if (!is_shape(cotangent, {x.dimensions()[0], x.dimensions()[1]}))
    return refused("the cotangent has shape " + shape_of(cotangent) + "; expected that of x");
  const auto by = static_cast<Activation>(activation);
  over_rows(pool, x, bias, cotangent, y, [by](Lanes value, Lanes g) { return g * slope_of(by, value); });
  return ffi::Error::Success();
}

ffi::Error gated(ffi::ThreadPool pool, Array gate, Array up, Result y, int64_t activation) {
  for (const auto& words : {complaint(activation), unlike("what passes", up, gate), unlike("the result", *y, gate)})
    if (!words.empty()) return refused(words);
  const auto by = static_cast<Activation>(activation);
  const float *x = gate.typed_data(), *passed = up.typed_data();
  float* to = y->typed_data();
  ask_for_huge_pages_of(y);
  over_numbers(pool, gate.element_count(), [&](int64_t at, int64_t count) {
    put(to + at, activated(by, part<Lanes>(x + at, count)) * part<Lanes>(passed + at, count), count);
  });
  return ffi::Error::Success();
}

ffi::Error gated_gradient(ffi::ThreadPool pool, Array gate, Array up, Array cotangent, Result for_up, Result for_gate,
                          int64_t activation) {
  for (const auto& words : {complaint(activation), unlike("what passes", up, gate), unlike("the cotangent", cotangent, gate),
                            unlike("a result", *for_up, gate), unlike("a result", *for_gate, gate)})
    if (!words.empty()) return refused(words);
  const auto by = static_cast<Activation>(activation);
  const float *x = gate.typed_data(), *passed = up.typed_data(), *given = cotangent.typed_data();
  float *of_up = for_up->typed_data(), *of_gate = for_gate->typed_data();
  ask_for_huge_pages_of(for_up);
  ask_for_huge_pages_of(for_gate);
  over_numbers(pool, gate.element_count(), [&](int64_t at, int64_t count) {
    const Lanes value = part<Lanes>(x + at, count), g = part<Lanes>(given + at, count);
    const Lanes opened = g * activated(by, value), moved = g * part<Lanes>(passed + at, count) * slope_of(by, value);
    put(of_up + at, opened, count);
    put(of_gate + at, moved, count);
  });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace pcp

PCP_HANDLER(pcp_gelu, pcp::gelu, "activation");
PCP_HANDLER(pcp_gelu_gradient, pcp::gelu_gradient, "activation");
PCP_HANDLER(pcp_gated, pcp::gated, "activation");
PCP_HANDLER(pcp_gated_gradient, pcp::gated_gradient, "activation");
