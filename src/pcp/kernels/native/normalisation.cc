// Layer and RMS normalisation of float32 rows, forward and backward: every row is read from memory once, and stays in the first cache
// while its mean, its variance and its result are computed.
//
// Handlers are called by whatever program names them, so they look at every shape and attribute before they touch memory.

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <string>

#include "arrays.h"
#include "rows.h"
#include "scratch.h"

namespace ffi = xla::ffi;

namespace pcp {
namespace {

ffi::Error refused(const std::string& words) {
  return refused_by("norm", words);
}

// What is wrong with rows, scale, epsilon and `centred`; empty if nothing is.
std::string complaint(const Array& x, const Array& scale, float epsilon, int64_t centred) {
  if (x.dimensions().size() != 2) return "x has shape " + shape_of(x) + "; expected [rows,width]";
  const int64_t width = x.dimensions()[1];
  if (!is_shape(scale, {width}))
    return "scale has shape " + shape_of(scale) + "; expected [" + std::to_string(width) + "]";
  if (!(epsilon >= 0.0f) || !std::isfinite(epsilon)) return "epsilon is no number from 0 on";
  if (centred != 0 && centred != 1) return "centred is " + std::to_string(centred) + "; expected 0 or 1";
  return "";
}

struct Statistics {
  float mean, deviation;  // the reciprocal of the standard deviation; the mean is 0 where it is not taken off
};

// In two passes over a row that is in the cache: the mean first, then the squared distances to it.
Statistics statistics(const float* x, int64_t width, float epsilon, bool centred) {
  const int64_t whole = width / kLanes * kLanes, rest = width - whole;
  float mean = 0.0f;
  if (centred) {
    Lanes sums = {};
    for (int64_t i = 0; i < whole; i += kLanes) sums += load(x + i);
    if (rest) sums += load_part(x + whole, rest);
    mean = sum(sums) / width;
  }
  Lanes squares = {};
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Lanes d = load(x + i) - mean;
    squares += d * d;
  }
  float variance = sum(squares);
  for (int64_t i = whole; i < width; ++i) variance += (x[i] - mean) * (x[i] - mean);
  return {mean, 1.0f / std::sqrt(variance / width + epsilon)};
}

void add(const float* a, const float* b, float* to, int64_t width) {
  const int64_t whole = width / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) store(to + i, load(a + i) + load(b + i));
  for (int64_t i = whole; i < width; ++i) to[i] = a[i] + b[i];
}

// Of x, or of x plus a residual where there is one: that sum goes out as well then. Mean and deviation of every row go out,
// too: the gradient takes them, and need not compute them again.
ffi::Error normalised(ffi::ThreadPool& pool, Array x, const Array* residual, Array scale, Array bias, Result* total,
                      Result y, Result means, Result deviations, float epsilon, int64_t centred) {
  if (auto words = complaint(x, scale, epsilon, centred); !words.empty()) return refused(words);
  const int64_t rows = x.dimensions()[0], width = x.dimensions()[1];
  if (residual && !is_shape(*residual, {rows, width}))
    return refused("the residual has shape " + shape_of(*residual) + "; expected that of x");
  if (!is_shape(bias, {width})) return refused("bias has shape " + shape_of(bias) + "; expected that of scale");
  if (!is_shape(*y, {rows, width}) || (total && !is_shape(**total, {rows, width})))
    return refused("the result has shape " + shape_of(total && is_shape(*y, {rows, width}) ? **total : *y) +
                   "; expected that of x");
  if (!is_shape(*means, {rows}) || !is_shape(*deviations, {rows}))
    return refused("means and deviations have shapes " + shape_of(*means) + " and " + shape_of(*deviations) +
                   "; expected [" + std::to_string(rows) + "]");
  ask_for_huge_pages_of(y);
  if (total) ask_for_huge_pages_of(*total);
  const float *from = x.typed_data(), *s = scale.typed_data(), *b = bias.typed_data();
  const float* more = residual ? residual->typed_data() : nullptr;
  float* sums = total ? (*total)->typed_data() : nullptr;
  float *to = y->typed_data(), *m = means->typed_data(), *r = deviations->typed_data();
  parallel_for(pool, width ? rows : 0, rows_at_once(width), [&](int64_t first, int64_t last) {
    const int64_t whole = width / kLanes * kLanes;
    for (int64_t row = first; row < last; ++row) {
      const float* in = from + row * width;
      float* out = to + row * width;
      if (more) {
        add(in, more + row * width, sums + row * width, width);
        in = sums + row * width;
      }
      const auto [mean, deviation] = statistics(in, width, epsilon, centred);
      m[row] = mean;
      r[row] = deviation;
      for (int64_t i = 0; i < whole; i += kLanes)
        store(out + i, (load(in + i) - mean) * deviation * load(s + i) + load(b + i));
      for (int64_t i = whole; i < width; ++i) out[i] = (in[i] - mean) * deviation * s[i] + b[i];
    }
  });
  return ffi::Error::Success();
}

ffi::Error norm(ffi::ThreadPool pool, Array x, Array scale, Array bias, Result y, Result means, Result deviations,
                float epsilon, int64_t centred) {
  return normalised(pool, x, nullptr, scale, bias, nullptr, y, means, deviations, epsilon, centred);
}

ffi::Error residual_norm(ffi::ThreadPool pool, Array x, Array residual, Array scale, Array bias, Result total, Result y,
                         Result means, Result deviations, float epsilon, int64_t centred) {
  return normalised(pool, x, &residual, scale, bias, &total, y, means, deviations, epsilon, centred);
}

// Of one row: r (h - mean(h) - n mean(h n)), where n is the normalised x, r its factor and h the cotangent times the scale;
// without mean(h) where the mean was not taken off. What the row adds to the gradients of scale and bias goes to `for_scale`
// and `for_bias`.
void row_gradient(const float* x, const float* s, const float* g, float* out, float* for_scale, float* for_bias,
                  int64_t width, Statistics statistics, bool centred) {
  const auto [mean, deviation] = statistics;
  const int64_t whole = width / kLanes * kLanes;
  Lanes sums = {}, products = {};
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Lanes n = (load(x + i) - mean) * deviation, cotangent = load(g + i), h = cotangent * load(s + i);
    sums += h;
    products += h * n;
    store(for_scale + i, load(for_scale + i) + cotangent * n);
    store(for_bias + i, load(for_bias + i) + cotangent);
  }
  float of_h = sum(sums), of_hn = sum(products);
  for (int64_t i = whole; i < width; ++i) {
    const float n = (x[i] - mean) * deviation, h = g[i] * s[i];
    of_h += h;
    of_hn += h * n;
    for_scale[i] += g[i] * n;
    for_bias[i] += g[i];
  }
  of_h = centred ? of_h / width : 0.0f;
  of_hn /= width;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Lanes n = (load(x + i) - mean) * deviation;
    store(out + i, deviation * (load(g + i) * load(s + i) - of_h - n * of_hn));
  }
  for (int64_t i = whole; i < width; ++i)
    out[i] = deviation * (g[i] * s[i] - of_h - (x[i] - mean) * deviation * of_hn);
}

// After the cotangent come means and deviations of the rows, or nothing: then they are computed again.
ffi::Error norm_gradient(ffi::ThreadPool pool, Array x, Array scale, Array cotangent, ffi::RemainingArgs handed,
                               Result for_x, Result for_scale, Result for_bias, float epsilon,
                         int64_t centred) {
  if (auto words = complaint(x, scale, epsilon, centred); !words.empty()) return refused(words);
  const int64_t rows = x.dimensions()[0], width = x.dimensions()[1];
  if (!is_shape(cotangent, {rows, width}) || !is_shape(*for_x, {rows, width}))
    return refused("the cotangent has shape " + shape_of(cotangent) + " and the gradient of x " + shape_of(*for_x) +
                   "; expected that of x");
  if (!is_shape(*for_scale, {width}) || !is_shape(*for_bias, {width}))
    return refused("the gradients of scale and bias have shapes " + shape_of(*for_scale) + " and " +
                   shape_of(*for_bias) + "; expected that of scale");
  const float *m = nullptr, *r = nullptr;
  if (handed.size() == 2) {
    const auto means = handed.get<Array>(0), deviations = handed.get<Array>(1);
    if (!means || !deviations || !is_shape(*means, {rows}) || !is_shape(*deviations, {rows}))
      return refused("means and deviations are not float32 of shape [" + std::to_string(rows) + "]");
    m = means->typed_data();
    r = deviations->typed_data();
  } else if (handed.size() != 0) {
    return refused("after the cotangent come " + std::to_string(handed.size()) + " arrays; expected none or two");
  }
  std::fill_n(for_scale->typed_data(), width, 0.0f);
  std::fill_n(for_bias->typed_data(), width, 0.0f);
  if (!rows || !width) return ffi::Error::Success();
  // The rows of a block are added up in order, and blocks in order after that: the bits do not depend on who computed which.
  const int64_t blocks = std::clamp<int64_t>(rows / rows_at_once(width), 1, 64);
  const int64_t height = (rows + blocks - 1) / blocks;
  std::unique_ptr<float[]> partial(new (std::nothrow) float[2 * blocks * width]());
  if (!partial)
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "pcp norm: there is no memory for partial sums");
  ask_for_huge_pages_of(for_x);
  const float *from = x.typed_data(), *s = scale.typed_data(), *g = cotangent.typed_data();
  float* to = for_x->typed_data();
  parallel_for(pool, blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      float* sums = partial.get() + 2 * block * width;
      for (int64_t row = block * height; row < std::min(rows, (block + 1) * height); ++row) {
        const int64_t at = row * width;
        const Statistics known = m ? Statistics{m[row], r[row]} : statistics(from + at, width, epsilon, centred);
        row_gradient(from + at, s, g + at, to + at, sums, sums + width, width, known, centred);
      }
    }
  });
  for (int64_t block = 0; block < blocks; ++block) {
    const float* sums = partial.get() + 2 * block * width;
    for (int64_t i = 0; i < width; ++i) {
      for_scale->typed_data()[i] += sums[i];
      for_bias->typed_data()[i] += sums[width + i];
    }
  }
  return ffi::Error::Success();
}

}  // namespace
}  // namespace pcp

PCP_HANDLER(pcp_norm, pcp::norm, "epsilon", "centred");
PCP_HANDLER(pcp_residual_norm, pcp::residual_norm, "epsilon", "centred");
PCP_HANDLER(pcp_norm_gradient, pcp::norm_gradient, "epsilon", "centred");
