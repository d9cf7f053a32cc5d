// Batch normalisation of float32 rows, by the statistics of each column over all rows, and its gradient, each with a ReLU behind it
// if there is one: two passes over memory forward, and two backward.
//
// Means and variances are exact where the mean is large beside the deviation, too: those of a block, in two passes while it is in a
// cache, are put together in double precision.
// Source: Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance", 1983, equation 2.1.
//
// Handlers are called by whatever program names them, so they look at every shape and attribute before they touch memory.

#include <algorithm>
#include <cmath>
#include <string>

#include "../native/arrays.h"
#include "../native/rows.h"
#include "../native/scratch.h"

namespace ffi = xla::ffi;

namespace pcp {
namespace {

constexpr int64_t kBlock = 1 << 15;  // elements of a block: they stay in the second cache
constexpr int64_t kMostParts = 64;   // of the rows, whose sums are kept apart

// Where a cotangent passes a ReLU: kernels in Python name them by these numbers.
enum class Relu : int64_t { none, above, not_below, count };

ffi::Error refused(const std::string& words) {
  return refused_by("batch_norm", words);
}

// What is wrong with rows, scale, bias and attributes; empty if nothing is.
std::string complaint(const Array& x, const Array& scale, const Array& bias, float epsilon, int64_t relu) {
  if (x.dimensions().size() != 2) return "x has shape " + shape_of(x) + "; expected [rows,width]";
  const int64_t width = x.dimensions()[1];
  if (!is_shape(scale, {width}) || !is_shape(bias, {width}))
    return "scale and bias have shapes " + shape_of(scale) + " and " + shape_of(bias) + "; expected [" + std::to_string(width) + "]";
  if (!(epsilon >= 0.0f) || !std::isfinite(epsilon)) return "epsilon is no number from 0 on";
  if (relu < 0 || relu >= static_cast<int64_t>(Relu::count)) return "relu is " + std::to_string(relu) + "; expected 0, 1 or 2";
  return "";
}

// Rows in parts, whose sums are kept apart, and those in blocks. Neither depends on who computes what, nor do the bits of a result.
struct Parts {
  int64_t rows, width, block, count, height;

  Parts(int64_t rows, int64_t width) : rows(rows), width(width), block(std::max<int64_t>(8, kBlock / width)) {
    const int64_t blocks = (rows + block - 1) / block;
    const int64_t of_part = (blocks + kMostParts - 1) / kMostParts;
    height = of_part * block;
    count = (rows + height - 1) / height;
  }

  // Calls `work(part, first row, rows)` for every block of each part, those of a part in order.
  template <typename Work>
  void for_blocks(ffi::ThreadPool& pool, const Work& work) const {
    parallel_for(pool, count, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        const int64_t end = std::min(rows, (part + 1) * height);
        for (int64_t row = part * height; row < end; row += block) work(part, row, std::min(block, end - row));
      }
    });
  }
};

// Calls `of(column, number)` for as many columns at a time as there are lanes, and for the rest.
template <typename Function>
inline void over_columns(int64_t width, const Function& of) {
  const int64_t whole = width / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) of(i, kLanes);
  if (whole < width) of(whole, width - whole);
}

// Number, mean and sum of squared distances to the mean, of rows of each column.
struct Moments {
  double *means, *squares;

  // Those of further rows, of which the sums of distances to `near`, and of their squares, are known.
  void add(int64_t before, int64_t more, const float* near, const float* sums, const float* products, int64_t width) {
    const double n = static_cast<double>(more), share = n / static_cast<double>(before + more);
    for (int64_t i = 0; i < width; ++i) {
      const double off = sums[i] / n, mean = near[i] + off, apart = mean - means[i];
      squares[i] += products[i] - off * sums[i] + apart * apart * share * static_cast<double>(before);
      means[i] += apart * share;
    }
  }

  void add(int64_t before, int64_t more, const Moments& other, int64_t width) {
    const double share = static_cast<double>(more) / static_cast<double>(before + more);
    for (int64_t i = 0; i < width; ++i) {
      const double apart = other.means[i] - means[i];
      squares[i] += other.squares[i] + apart * apart * share * static_cast<double>(before);
      means[i] += apart * share;
    }
  }
};

// Of a block: a value near the mean of each column, and the sums of distances to it, and of their squares.
void block_sums(const float* x, int64_t rows, int64_t width, float* near, float* sums, float* products) {
  std::fill_n(near, width, 0.0f);
  std::fill_n(sums, width, 0.0f);
  std::fill_n(products, width, 0.0f);
  const float share = 1.0f / static_cast<float>(rows);
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const float* at = x + row * width;
    over_columns(width, [&](int64_t i, int64_t n) {
      const Lanes four = (part<Lanes>(at + i, n) + part<Lanes>(at + width + i, n)) +
                         (part<Lanes>(at + 2 * width + i, n) + part<Lanes>(at + 3 * width + i, n));
      put(near + i, part<Lanes>(near + i, n) + four * share, n);
    });
  }
  for (; row < rows; ++row)
    over_columns(width, [&](int64_t i, int64_t n) {
      put(near + i, part<Lanes>(near + i, n) + part<Lanes>(x + row * width + i, n) * share, n);
    });
  for (row = 0; row + 2 <= rows; row += 2) {
    const float* at = x + row * width;
    over_columns(width, [&](int64_t i, int64_t n) {
      const Lanes middle = part<Lanes>(near + i, n);
      const Lanes a = part<Lanes>(at + i, n) - middle, b = part<Lanes>(at + width + i, n) - middle;
      put(sums + i, part<Lanes>(sums + i, n) + (a + b), n);
      put(products + i, part<Lanes>(products + i, n) + (a * a + b * b), n);
    });
  }
  if (row < rows)
    over_columns(width, [&](int64_t i, int64_t n) {
      const Lanes a = part<Lanes>(x + row * width + i, n) - part<Lanes>(near + i, n);
      put(sums + i, part<Lanes>(sums + i, n) + a, n);
      put(products + i, part<Lanes>(products + i, n) + a * a, n);
    });
}

// Means and reciprocals of deviations of all columns; false if there is no memory.
bool statistics(ffi::ThreadPool& pool, const float* x, int64_t rows, int64_t width, float epsilon, float* means, float* deviations) {
  const Parts parts(rows, width);
  const int64_t of_part = width * static_cast<int64_t>(2 * sizeof(double) + 3 * sizeof(float));
  Scratch memory(parts.count * of_part);
  if (!memory.as<char>()) return false;
  const auto moments = [&](int64_t part) {
    double* at = memory.as<double>() + part * 2 * width;
    return Moments{at, at + width};
  };
  float* others = reinterpret_cast<float*>(memory.as<double>() + parts.count * 2 * width);
  std::fill_n(memory.as<double>(), parts.count * 2 * width, 0.0);
  parts.for_blocks(pool, [&](int64_t part, int64_t row, int64_t count) {
    float *near = others + part * 3 * width, *sums = near + width, *products = sums + width;
    block_sums(x + row * width, count, width, near, sums, products);
    moments(part).add(row - part * parts.height, count, near, sums, products, width);
  });
  for (int64_t part = 1; part < parts.count; ++part) {
    const int64_t before = part * parts.height;
    moments(0).add(before, std::min(parts.height, rows - before), moments(part), width);
  }
  const auto [mean, squares] = moments(0);
  for (int64_t i = 0; i < width; ++i) {
    means[i] = static_cast<float>(mean[i]);
    deviations[i] = static_cast<float>(1.0 / std::sqrt(squares[i] / static_cast<double>(rows) + epsilon));
  }
  return true;
}

// What the columns of one row are computed with.
struct Columns {
  const float *means, *deviations, *scale, *bias;

  Lanes normed(const float* x, int64_t i, int64_t n) const {
    return (part<Lanes>(x + i, n) - part<Lanes>(means + i, n)) * part<Lanes>(deviations + i, n);
  }
  Lanes scaled(Lanes normed, int64_t i, int64_t n) const { return normed * part<Lanes>(scale + i, n) + part<Lanes>(bias + i, n); }

  // The cotangent before the ReLU.
  template <Relu relu>
  Lanes passed(const float* g, Lanes normed, int64_t i, int64_t n) const {
    const Lanes cotangent = part<Lanes>(g + i, n);
    if constexpr (relu == Relu::none) return cotangent;
    const Lanes y = scaled(normed, i, n);
    if constexpr (relu == Relu::above) return y > 0.0f ? cotangent : Lanes{};
    return y <= 0.0f ? Lanes{} : cotangent;
  }
};

ffi::Error batch_norm(ffi::ThreadPool pool, Array x, Array scale, Array bias, Result y, Result means, Result deviations,
                      float epsilon, int64_t relu) {
  if (auto words = complaint(x, scale, bias, epsilon, relu); !words.empty()) return refused(words);
  const int64_t rows = x.dimensions()[0], width = x.dimensions()[1];
  if (!is_shape(*y, {rows, width})) return refused("the result has shape " + shape_of(*y) + "; expected that of x");
  if (!is_shape(*means, {width}) || !is_shape(*deviations, {width}))
    return refused("means and deviations have shapes " + shape_of(*means) + " and " + shape_of(*deviations) + "; expected [" +
                   std::to_string(width) + "]");
  if (!rows || !width) return refused("x has no elements");
  ask_for_huge_pages_of(y);
  const float* from = x.typed_data();
  float* to = y->typed_data();
  if (!statistics(pool, from, rows, width, epsilon, means->typed_data(), deviations->typed_data()))
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "pcp batch_norm: there is no memory for statistics");
  const Columns columns{means->typed_data(), deviations->typed_data(), scale.typed_data(), bias.typed_data()};
  parallel_for(pool, rows, rows_at_once(width), [&](int64_t first, int64_t last) {
    for (int64_t at = first * width; at < last * width; at += width)
      over_columns(width, [&](int64_t i, int64_t n) {
        const Lanes found = columns.scaled(columns.normed(from + at, i, n), i, n);
        put(to + at + i, relu ? (found <= 0.0f ? Lanes{} : found) : found, n);
      });
  });
  return ffi::Error::Success();
}

// With c the cotangent before the ReLU, and n the normalised x: c and c n are added up for each column, which are the gradients of
// bias and scale; that of x is r s (c - mean(c) - n mean(c n)).
template <Relu relu>
bool gradients(ffi::ThreadPool& pool, const float* x, const float* g, int64_t rows, Columns columns, int64_t width, float* for_x,
               float* for_scale, float* for_bias) {
  const Parts parts(rows, width);
  Scratch memory(parts.count * width * static_cast<int64_t>(2 * sizeof(double) + 2 * sizeof(float)));
  if (!memory.as<char>()) return false;
  double* totals = memory.as<double>();
  float* others = reinterpret_cast<float*>(totals + parts.count * 2 * width);
  std::fill_n(totals, parts.count * 2 * width, 0.0);
  parts.for_blocks(pool, [&](int64_t place, int64_t row, int64_t count) {
    float *sums = others + place * 2 * width, *products = sums + width;
    std::fill_n(sums, 2 * width, 0.0f);
    int64_t at = row * width;
    for (; at + 2 * width <= (row + count) * width; at += 2 * width)
      over_columns(width, [&](int64_t i, int64_t n) {
        const Lanes a = columns.normed(x + at, i, n), of_a = columns.passed<relu>(g + at, a, i, n);
        const Lanes b = columns.normed(x + at + width, i, n), of_b = columns.passed<relu>(g + at + width, b, i, n);
        put(sums + i, part<Lanes>(sums + i, n) + (of_a + of_b), n);
        put(products + i, part<Lanes>(products + i, n) + (of_a * a + of_b * b), n);
      });
    if (at < (row + count) * width)
      over_columns(width, [&](int64_t i, int64_t n) {
        const Lanes a = columns.normed(x + at, i, n), of_a = columns.passed<relu>(g + at, a, i, n);
        put(sums + i, part<Lanes>(sums + i, n) + of_a, n);
        put(products + i, part<Lanes>(products + i, n) + of_a * a, n);
      });
    double* total = totals + place * 2 * width;
    for (int64_t i = 0; i < 2 * width; ++i) total[i] += sums[i];
  });
  for (int64_t place = 1; place < parts.count; ++place)
    for (int64_t i = 0; i < 2 * width; ++i) totals[i] += totals[place * 2 * width + i];
  float *middles = others, *slopes = others + width;
  for (int64_t i = 0; i < width; ++i) {
    for_bias[i] = static_cast<float>(totals[i]);
    for_scale[i] = static_cast<float>(totals[width + i]);
    middles[i] = static_cast<float>(totals[i] / static_cast<double>(rows));
    slopes[i] = static_cast<float>(totals[width + i] / static_cast<double>(rows));
  }
  parallel_for(pool, rows, rows_at_once(width), [&](int64_t first, int64_t last) {
    for (int64_t at = first * width; at < last * width; at += width)
      over_columns(width, [&](int64_t i, int64_t n) {
        const Lanes a = columns.normed(x + at, i, n);
        const Lanes rest = columns.passed<relu>(g + at, a, i, n) - part<Lanes>(middles + i, n) - a * part<Lanes>(slopes + i, n);
        put(for_x + at + i, part<Lanes>(columns.deviations + i, n) * part<Lanes>(columns.scale + i, n) * rest, n);
      });
  });
  return true;
}

// After the cotangent come means and deviations of the columns, or nothing: then they are computed again.
ffi::Error batch_norm_gradient(ffi::ThreadPool pool, Array x, Array scale, Array bias, Array cotangent, ffi::RemainingArgs handed,
                               Result for_x, Result for_scale, Result for_bias, float epsilon, int64_t relu) {
  if (auto words = complaint(x, scale, bias, epsilon, relu); !words.empty()) return refused(words);
  const int64_t rows = x.dimensions()[0], width = x.dimensions()[1];
  if (!is_shape(cotangent, {rows, width}) || !is_shape(*for_x, {rows, width}))
    return refused("the cotangent has shape " + shape_of(cotangent) + " and the gradient of x " + shape_of(*for_x) +
                   "; expected that of x");
  if (!is_shape(*for_scale, {width}) || !is_shape(*for_bias, {width}))
    return refused("the gradients of scale and bias have shapes " + shape_of(*for_scale) + " and " + shape_of(*for_bias) +
                   "; expected that of scale");
  if (!rows || !width) return refused("x has no elements");
  const ffi::Error full(ffi::ErrorCode::kResourceExhausted, "pcp batch_norm: there is no memory for sums");
  Scratch own(handed.size() ? 1 : 2 * width * static_cast<int64_t>(sizeof(float)));
  Columns columns{nullptr, nullptr, scale.typed_data(), bias.typed_data()};
  if (handed.size() == 2) {
    const auto means = handed.get<Array>(0), deviations = handed.get<Array>(1);
    if (!means || !deviations || !is_shape(*means, {width}) || !is_shape(*deviations, {width}))
      return refused("means and deviations are not float32 of shape [" + std::to_string(width) + "]");
    columns.means = means->typed_data();
    columns.deviations = deviations->typed_data();
  } else if (handed.size() != 0) {
    return refused("after the cotangent come " + std::to_string(handed.size()) + " arrays; expected none or two");
  } else {
    float* made = own.as<float>();
    if (!made || !statistics(pool, x.typed_data(), rows, width, epsilon, made, made + width)) return full;
    columns.means = made;
    columns.deviations = made + width;
  }
  ask_for_huge_pages_of(for_x);
  const auto of = relu == static_cast<int64_t>(Relu::none)    ? gradients<Relu::none>
                  : relu == static_cast<int64_t>(Relu::above) ? gradients<Relu::above>
                                                              : gradients<Relu::not_below>;
  const bool is_done = of(pool, x.typed_data(), cotangent.typed_data(), rows, columns, width, for_x->typed_data(),
                          for_scale->typed_data(), for_bias->typed_data());
  return is_done ? ffi::Error::Success() : full;
}

}  // namespace
}  // namespace pcp

PCP_HANDLER(pcp_batch_norm, pcp::batch_norm, "epsilon", "relu");
PCP_HANDLER(pcp_batch_norm_gradient, pcp::batch_norm_gradient, "epsilon", "relu");
