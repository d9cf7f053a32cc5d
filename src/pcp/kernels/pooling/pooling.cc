// The gradient of the largest number of each window of float32 images, whose last axis is that of features. What was largest is
// sought again: x is read once, and nothing of the forward pass is kept.
//
// Handlers are called by whatever program names them, so they look at every shape and attribute before they touch memory.

#include <algorithm>
#include <limits>
#include <string>

#include "../native/arrays.h"
#include "../native/rows.h"
#include "../native/scratch.h"

namespace ffi = xla::ffi;

namespace pcp {
namespace {

typedef int32_t Places __attribute__((vector_size(kLanes * sizeof(int32_t))));

constexpr int64_t kGrain = 1 << 14;  // elements of a part of the work at least: about ten microseconds
constexpr int64_t kMost = 64;        // numbers of a window
constexpr int64_t kFar = 1 << 20;    // rows and columns, at most, of a window, between two of them, and before the first

ffi::Error refused(const std::string& words) {
  return refused_by("max_pool", words);
}

// What is wrong with two numbers; empty if nothing is.
std::string complaint(const char* name, Numbers numbers, int64_t least) {
  if (numbers.size() == 2 && std::all_of(numbers.begin(), numbers.end(), [&](int64_t n) { return n >= least && n <= kFar; })) return "";
  return std::string(name) + " are not two numbers from " + std::to_string(least) + " to 2^20";
}

struct Pool {
  int64_t height, width, features, rows, columns;  // of an image, and of its result
  int64_t size[2], stride[2], before[2];

  // Adds to rows [first, last) of the gradient of an image what their windows give, of which other rows get their part elsewhere.
  void add(const float* x, const float* g, float* out, int64_t first, int64_t last) const {
    std::fill(out + first * width * features, out + last * width * features, 0.0f);
    const int64_t begin = std::max<int64_t>(0, first + before[0] - size[0] + 1);
    const int64_t end = std::min(rows, (last - 1 + before[0]) / stride[0] + 1);
    for (int64_t row = (begin + stride[0] - 1) / stride[0]; row < end; ++row)
      for (int64_t column = 0; column < columns; ++column) window(x, g + (row * columns + column) * features, out, row, column, first, last);
  }

  void window(const float* x, const float* g, float* out, int64_t row, int64_t column, int64_t first, int64_t last) const {
    int64_t at[kMost], count = size[0] * size[1];  // where each number of the window lies; -1 where none does
    bool is_mine[kMost];
    for (int64_t k = 0; k < count; ++k) {
      const int64_t i = row * stride[0] - before[0] + k / size[1], j = column * stride[1] - before[1] + k % size[1];
      const bool is_there = i >= 0 && i < height && j >= 0 && j < width;
      at[k] = is_there ? (i * width + j) * features : -1;
      is_mine[k] = is_there && i >= first && i < last;
    }
    const int64_t whole = features / kLanes * kLanes;
    for (int64_t c = 0; c < whole; c += kLanes) of_features(x, g, out, at, is_mine, count, c, kLanes);
    if (whole < features) of_features(x, g, out, at, is_mine, count, whole, features - whole);
  }

  // What was chosen so far stays if it is no less than the next. A comparison with NaN is false.
  static inline __attribute__((always_inline)) void of_features(const float* x, const float* g, float* out, const int64_t* at,
                                                                 const bool* is_mine, int64_t count, int64_t c, int64_t n) {
    const Lanes least = Lanes{} - std::numeric_limits<float>::infinity(), cotangent = part<Lanes>(g + c, n);
    Lanes best = at[0] < 0 ? least : part<Lanes>(x + at[0] + c, n);
    Places place = {};
    for (int64_t k = 1; k < count; ++k) {
      const Lanes next = at[k] < 0 ? least : part<Lanes>(x + at[k] + c, n);
      const auto stays = best >= next;
      best = stays ? best : next;
      place = stays ? place : Places{} + static_cast<int32_t>(k);
    }
    for (int64_t k = 0; k < count; ++k) {
      if (!is_mine[k]) continue;
      float* to = out + at[k] + c;
      put(to, part<Lanes>(to, n) + (place == Places{} + static_cast<int32_t>(k) ? cotangent : Lanes{}), n);
    }
  }
};

ffi::Error max_pool_gradient(ffi::ThreadPool pool, Array x, Array cotangent, Result for_x, Numbers sizes, Numbers strides,
                             Numbers before) {
  if (x.dimensions().size() != 4) return refused("x has shape " + shape_of(x) + "; expected [samples,height,width,features]");
  for (const auto& [name, numbers, least] : {std::tuple{"sizes", sizes, 1}, {"strides", strides, 1}, {"before", before, 0}})
    if (auto words = complaint(name, numbers, least); !words.empty()) return refused(words);
  if (sizes[0] * sizes[1] > kMost) return refused("a window has " + std::to_string(sizes[0] * sizes[1]) + " numbers; expected 64 at most");
  const int64_t samples = x.dimensions()[0], height = x.dimensions()[1], width = x.dimensions()[2], features = x.dimensions()[3];
  if (!is_shape(*for_x, {samples, height, width, features}))
    return refused("the gradient of x has shape " + shape_of(*for_x) + "; expected that of x");
  if (cotangent.dimensions().size() != 4 || cotangent.dimensions()[0] != samples || cotangent.dimensions()[3] != features)
    return refused("the cotangent has shape " + shape_of(cotangent) + "; expected samples and features of x");
  const int64_t rows = cotangent.dimensions()[1], columns = cotangent.dimensions()[2];
  if (!samples || !height || !width || !features) return ffi::Error::Success();
  const Pool of{height, width, features, rows, columns, {sizes[0], sizes[1]}, {strides[0], strides[1]}, {before[0], before[1]}};
  const float *from = x.typed_data(), *g = cotangent.typed_data();
  float* to = for_x->typed_data();
  ask_for_huge_pages_of(for_x);
  // Windows that reach over the border of two parts are looked at for both.
  const int64_t tall = std::max(4 * sizes[0], kGrain / std::max<int64_t>(1, width * features));
  const int64_t parts = (height + tall - 1) / tall;
  parallel_for(pool, samples * parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t place = first; place < last; ++place) {
      const int64_t sample = place / parts, row = place % parts * tall;
      of.add(from + sample * height * width * features, g + sample * rows * columns * features,
             to + sample * height * width * features, row, std::min(height, row + tall));
    }
  });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace pcp

PCP_HANDLER(pcp_max_pool_gradient, pcp::max_pool_gradient, "sizes", "strides", "before");
