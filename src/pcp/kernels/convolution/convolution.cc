// Convolutions of float32 as products of matrices: of the patches of the input that windows lie over, which are gathered where they are
// copied into panels, and of the kernel.
//
// Handlers are called by whatever program names them, so they look at every attribute before they touch memory.

#include "patches.h"

#include "../native/arrays.h"
#include "../native/panels/multiply.h"
#include "../native/panels/tiles.h"
#include "../native/rows.h"
#include "../native/scratch.h"

#include <string>
#include <vector>

namespace ffi = xla::ffi;

namespace pcp {
namespace {

ffi::Error refused(const std::string& words) { return refused_by("convolution", words); }

constexpr int64_t kLargest = int64_t{1} << 40;    // number of elements
constexpr int64_t kFarthest = int64_t{1} << 31;   // place along an axis

// A walk as attributes say it; what is wrong with them is put into `words`.
Walk walk_of(Numbers order, Numbers counts, Numbers steps, size_t axes, std::string& words) {
  Walk made;
  if (order.size() != axes || counts.size() != axes || steps.size() != axes) {
    words = "there are " + std::to_string(order.size()) + ", " + std::to_string(counts.size()) + " and " + std::to_string(steps.size()) +
            " numbers for the axes of a walk; expected " + std::to_string(axes);
    return made;
  }
  std::vector<bool> seen(axes);
  int64_t elements = 1;
  for (size_t i = 0; i < axes; ++i) {
    if (order[i] < 0 || order[i] >= static_cast<int64_t>(axes) || seen[order[i]]) words = "an axis is named twice, or not there";
    if (words.empty()) seen[order[i]] = true;
    if (counts[i] < 1 || __builtin_mul_overflow(elements, counts[i], &elements) || elements > kLargest)
      words = "a walk has no places, or too many";
    if (steps[i] < 0 || steps[i] > kFarthest / std::max<int64_t>(1, counts[i])) words = "a step is negative or too large";
    if (!words.empty()) return made;
  }
  made.order.assign(order.begin(), order.end());
  made.sizes.assign(counts.begin(), counts.end());
  made.steps.assign(steps.begin(), steps.end());
  return made;
}

// By axis of the input, `places` is how many places the result has along it, `strides` how far apart they are, `window` how many numbers
// a window has, `dilations` how far apart these are, and `before` how much padding is in front. The order of the result's axes before
// its last one, the outputs, is `order`, that of the kernel's other axes `window_order`; `kernel_strides` are those of numbers of a
// window and of outputs.
template <typename Form>
ffi::Error convolve(ffi::ThreadPool pool, Array x, Array kernel, Result result, Numbers places, Numbers strides, Numbers order,
                    Numbers window, Numbers dilations, Numbers window_order, Numbers before, Numbers kernel_strides, int64_t outputs) {
  const auto sizes = x.dimensions();
  if (sizes.size() < 1 || sizes.size() > Patches::kAxes)
    return refused("the input has " + std::to_string(sizes.size()) + " axes; expected 1 to " + std::to_string(Patches::kAxes));
  Patches patches;
  std::string words;
  patches.rows = walk_of(order, places, strides, sizes.size(), words);
  if (words.empty()) patches.inner = walk_of(window_order, window, dilations, sizes.size(), words);
  if (!words.empty()) return refused(words);
  if (before.size() != sizes.size()) return refused("there is not one number of padding for each axis");
  patches.strides.assign(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 0;) {
    if (before[i] < -kFarthest || before[i] > kFarthest) return refused("there is too much padding");
    if (i + 1 < sizes.size()) patches.strides[i] = patches.strides[i + 1] * sizes[i + 1];
  }
  patches.sizes.assign(sizes.begin(), sizes.end());
  patches.before.assign(before.begin(), before.end());
  patches.at = x.typed_data();
  const int64_t rows = patches.rows.count(), inner = patches.inner.count();
  int64_t elements;
  if (outputs < 1 || __builtin_mul_overflow(rows, outputs, &elements) || elements != static_cast<int64_t>(result->element_count()))
    return refused("the result has " + std::to_string(result->element_count()) + " elements; expected " + std::to_string(rows) + " times " +
                   std::to_string(outputs));
  words = unreadable("the kernel", kernel.element_count(), {inner, outputs}, kernel_strides);
  if (!words.empty()) return refused(words);
  ask_for_huge_pages(result->typed_data(), elements * static_cast<int64_t>(sizeof(float)));
  const Matrix right{kernel.typed_data(), kernel_strides[0], kernel_strides[1]};
  const ProductWith<Matrix, Patches> product{patches, right, result->typed_data(), rows, outputs, inner, {}};
  if (!by_panels<Form>([&](auto panels) { return multiply_tall<decltype(panels)>(product, Workers{&pool}); }))
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "pcp convolution: there is no memory for copies of the operands");
  return ffi::Error::Success();
}

}  // namespace
}  // namespace pcp

#define PCP_CONVOLUTION(name, form)                                                                                          \
  PCP_HANDLER(name, pcp::convolve<pcp::form>, "places", "strides", "order", "window", "dilations", "window_order", "before", \
              "kernel_strides", "outputs")

PCP_CONVOLUTION(pcp_convolution_f32, Singles);
PCP_CONVOLUTION(pcp_convolution_bf16, Pairs);
PCP_CONVOLUTION(pcp_convolution_bf16_x3, InParts);
