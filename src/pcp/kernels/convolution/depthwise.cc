// Depthwise convolutions of float32 images whose last axis is that of channels, each of which has a window of its own: the convolution,
// also of an input whose elements lie apart as in the gradient of a strided one, and the gradient of the windows.
//
// Handlers are called by whatever program names them, so they look at every shape and attribute before they touch memory.

#include <algorithm>
#include <string>
#include <vector>

#include "../native/arrays.h"
#include "../native/rows.h"
#include "../native/scratch.h"

namespace ffi = xla::ffi;

namespace pcp {
namespace {

constexpr int64_t kFar = 1 << 20;  // of numbers that attributes say
constexpr int kColumns = 8;        // of a result, whose sums are in registers at once
constexpr int kTaps = 8;           // of a window's row, likewise

ffi::Error refused(const std::string& words) { return refused_by("depthwise", words); }

// Number u of a window of the place i of a result lies over element (i * stride + u * dilation - before) / spread of the input along an
// axis, where that is a whole number and there is such an element.
struct Axis {
  int64_t size, places, window, stride, dilation, spread, before;

  int64_t at(int64_t i, int64_t u) const {
    const int64_t far = i * stride + u * dilation - before;
    return far < 0 || far % spread ? -1 : far / spread < size ? far / spread : -1;
  }
  // Places from the first on, all of whose windows are within the input; none where elements lie apart.
  int64_t first_inside() const { return std::min(places, before > 0 ? (before + stride - 1) / stride : 0); }
  int64_t end_inside() const {
    const int64_t room = size - 1 + before - (window - 1) * dilation;
    return spread > 1 || room < 0 ? 0 : std::min(places, room / stride + 1);
  }
};

struct Images {
  int64_t samples, channels;
  Axis rows, columns;

  int64_t of_input() const { return rows.size * columns.size * channels; }
  int64_t of_result() const { return rows.places * columns.places * channels; }
};

// `count` neighbouring columns of a row of the result, at channels [c, c + n). All their windows are inside along the columns if there is
// more than one.
template <int count>
inline __attribute__((always_inline)) void columns_of(const Images& of, const float* x, const float* kernel, float* out, int64_t i,
                                                      int64_t j, int64_t c, int64_t n) {
  Lanes sums[count] = {};
  const int64_t between = of.columns.stride * of.channels;
  for (int64_t u = 0; u < of.rows.window; ++u) {
    const int64_t row = of.rows.at(i, u);
    if (row < 0) continue;
    const float* line = x + row * of.columns.size * of.channels + c;
    for (int64_t v = 0; v < of.columns.window; ++v) {
      const int64_t column = of.columns.at(j, v);
      if (column < 0) continue;
      const Lanes weight = part<Lanes>(kernel + (u * of.columns.window + v) * of.channels + c, n);
      const float* from = line + column * of.channels;
      for (int k = 0; k < count; ++k) sums[k] += part<Lanes>(from + k * between, n) * weight;
    }
  }
  for (int k = 0; k < count; ++k) put(out + (j + k) * of.channels + c, sums[k], n);
}

inline __attribute__((always_inline)) void row_of(const Images& of, const float* x, const float* kernel, float* out, int64_t i, int64_t c,
                                                  int64_t n) {
  const int64_t first = of.columns.first_inside(), end = std::max(first, of.columns.end_inside());
  int64_t j = 0;
  for (; j < first; ++j) columns_of<1>(of, x, kernel, out, i, j, c, n);
  for (; j + kColumns <= end; j += kColumns) columns_of<kColumns>(of, x, kernel, out, i, j, c, n);
  for (; j < of.columns.places; ++j) columns_of<1>(of, x, kernel, out, i, j, c, n);
}

// What `count` numbers of a window's row, from v on, get from one row of the input and of the cotangent, at channels [c, c + n).
template <int count>
inline __attribute__((always_inline)) void taps_of(const Images& of, const float* line, const float* g, float* sums, int64_t v, int64_t c,
                                                   int64_t n) {
  Lanes found[count] = {};
  const int64_t between = of.columns.dilation * of.channels;
  const int64_t first = of.columns.first_inside(), end = std::max(first, of.columns.end_inside());
  for (int64_t j = 0; j < of.columns.places; ++j) {
    const Lanes cotangent = part<Lanes>(g + j * of.channels + c, n);
    if (j >= first && j < end) {
      const float* from = line + of.columns.at(j, v) * of.channels + c;
      for (int k = 0; k < count; ++k) found[k] += part<Lanes>(from + k * between, n) * cotangent;
      continue;
    }
    for (int k = 0; k < count; ++k) {
      const int64_t column = of.columns.at(j, v + k);
      if (column >= 0) found[k] += part<Lanes>(line + column * of.channels + c, n) * cotangent;
    }
  }
  for (int k = 0; k < count; ++k) put(sums + (v + k) * of.channels + c, part<Lanes>(sums + (v + k) * of.channels + c, n) + found[k], n);
}

// Sums of a row of the windows at channels [c, c + n), over all samples and rows; those of one row are added up apart.
inline __attribute__((always_inline)) void windows_of(const Images& of, const float* x, const float* g, float* sums, int64_t u, int64_t c,
                                                      int64_t n) {
  for (int64_t v = 0; v < of.columns.window; ++v) put(sums + v * of.channels + c, Lanes{}, n);
  for (int64_t sample = 0; sample < of.samples; ++sample)
    for (int64_t i = 0; i < of.rows.places; ++i) {
      const int64_t row = of.rows.at(i, u);
      if (row < 0) continue;
      const float* line = x + sample * of.of_input() + row * of.columns.size * of.channels;
      const float* cotangent = g + sample * of.of_result() + i * of.columns.places * of.channels;
      int64_t v = 0;
      for (; v + kTaps <= of.columns.window; v += kTaps) taps_of<kTaps>(of, line, cotangent, sums, v, c, n);
      switch (of.columns.window - v) {
        case 7: taps_of<7>(of, line, cotangent, sums, v, c, n); break;
        case 6: taps_of<6>(of, line, cotangent, sums, v, c, n); break;
        case 5: taps_of<5>(of, line, cotangent, sums, v, c, n); break;
        case 4: taps_of<4>(of, line, cotangent, sums, v, c, n); break;
        case 3: taps_of<3>(of, line, cotangent, sums, v, c, n); break;
        case 2: taps_of<2>(of, line, cotangent, sums, v, c, n); break;
        case 1: taps_of<1>(of, line, cotangent, sums, v, c, n); break;
        default: break;
      }
    }
}

// Images as shapes and attributes say; what is wrong with them is put into `words`. Attributes have a number for rows and one for columns.
Images images_of(const Array& input, const Array& windows, const Array& result, Numbers strides, Numbers dilations, Numbers spread,
                 Numbers before, std::string& words) {
  const auto x = input.dimensions(), kernel = windows.dimensions(), y = result.dimensions();
  if (x.size() != 4 || kernel.size() != 3 || y.size() != 4) {
    words = "shapes are " + shape_of(input) + ", " + shape_of(windows) + " and " + shape_of(result) +
            "; expected [samples,rows,columns,channels], [rows,columns,channels] and [samples,rows,columns,channels]";
    return {};
  }
  if (kernel[2] != x[3] || y[3] != x[3] || y[0] != x[0]) words = "there are not as many channels and samples everywhere";
  for (const auto& [numbers, least] : {std::pair{strides, 1}, {dilations, 1}, {spread, 1}, {before, -(1 << 20)}})
    if (numbers.size() != 2 || std::any_of(numbers.begin(), numbers.end(), [&](int64_t n) { return n < least || n > kFar; }))
      words = "an attribute is not two numbers that are large enough, and at most 2^20";
  for (int axis = 0; axis < 2; ++axis)
    if (x[axis + 1] > kFar || y[axis + 1] > kFar || kernel[axis] > kFar) words = "there are more than 2^20 rows or columns";
  if (!words.empty()) return {};
  const auto along = [&](int axis) {
    return Axis{x[axis + 1], y[axis + 1], kernel[axis], strides[axis], dilations[axis], spread[axis], before[axis]};
  };
  return {x[0], x[3], along(0), along(1)};
}

ffi::Error depthwise(ffi::ThreadPool pool, Array x, Array kernel, Result result, Numbers strides, Numbers dilations, Numbers spread,
                     Numbers before) {
  std::string words;
  const Images of = images_of(x, kernel, *result, strides, dilations, spread, before, words);
  if (!words.empty()) return refused(words);
  const float *from = x.typed_data(), *weights = kernel.typed_data();
  float* to = result->typed_data();
  ask_for_huge_pages_of(result);
  parallel_for(pool, of.samples * of.rows.places, 1, [&](int64_t first, int64_t last) {
    for (int64_t place = first; place < last; ++place) {
      const int64_t sample = place / of.rows.places, i = place % of.rows.places;
      const float* image = from + sample * of.of_input();
      float* out = to + sample * of.of_result() + i * of.columns.places * of.channels;
      const int64_t whole = of.channels / kLanes * kLanes;
      for (int64_t c = 0; c < whole; c += kLanes) row_of(of, image, weights, out, i, c, kLanes);
      if (whole < of.channels) row_of(of, image, weights, out, i, whole, of.channels - whole);
    }
  });
  return ffi::Error::Success();
}

ffi::Error depthwise_gradient(ffi::ThreadPool pool, Array x, Array cotangent, Result for_kernel, Numbers strides, Numbers dilations,
                              Numbers spread, Numbers before) {
  std::string words;
  const Images of = images_of(x, *for_kernel, cotangent, strides, dilations, spread, before, words);
  if (!words.empty()) return refused(words);
  const float *from = x.typed_data(), *g = cotangent.typed_data();
  float* to = for_kernel->typed_data();
  const int64_t blocks = (of.channels + kLanes - 1) / kLanes;
  parallel_for(pool, of.rows.window * blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t place = first; place < last; ++place) {
      const int64_t u = place / blocks, c = place % blocks * kLanes;
      float* sums = to + u * of.columns.window * of.channels;
      if (c + kLanes <= of.channels)
        windows_of(of, from, g, sums, u, c, kLanes);
      else
        windows_of(of, from, g, sums, u, c, of.channels - c);
    }
  });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace pcp

PCP_HANDLER(pcp_depthwise, pcp::depthwise, "strides", "dilations", "spread", "before");
PCP_HANDLER(pcp_depthwise_gradient, pcp::depthwise_gradient, "strides", "dilations", "spread", "before");
