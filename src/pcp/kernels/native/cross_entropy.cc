// Cross entropy of float32 rows of logits: the logarithm of the sum of a row's exponentials in one pass over memory, and the
// gradient, which may be written over the logits.
//
// Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3.
//
// Handlers are called by whatever program names them, so they look at every shape before they touch memory.

#include <cmath>
#include <string>

#include "arrays.h"
#include "elementwise.h"
#include "rows.h"
#include "scratch.h"

namespace ffi = xla::ffi;

namespace pcp {
namespace {

constexpr int64_t kBlock = 1 << 12;  // of a row at once: read from memory for its maximum, from the cache for its sum
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLarge = 1024.0f;  // a normaliser beyond which float32 loses of the logarithm in it
using Classes = ffi::Buffer<ffi::S32>;

ffi::Error refused(const std::string& words) { return refused_by("cross entropy", words); }

// Up to sixteen logits; those that are not there weigh nothing.
Lanes logits_at(const float* at, int64_t count) {
  if (count >= kLanes) return load(at);
  Lanes found = Lanes{} - kInfinity;
  std::memcpy(&found, at, count * sizeof(float));
  return found;
}

// The logarithm of the sum of a row's exponentials: the largest logit, and the logarithm of the sum without it.
struct Normaliser {
  float largest, logarithm;
  float whole() const { return logarithm + largest; }
};

// NaN where the largest logit is not finite, as it is where the largest is taken off first.
Normaliser normaliser_of(const float* row, int64_t width) {
  float largest = -kInfinity, total = 0.0f;
  for (int64_t start = 0; start < width; start += kBlock) {
    const int64_t end = std::min(start + kBlock, width);
    Lanes tops = Lanes{} - kInfinity, sums = {};
    for (int64_t i = start; i < end; i += kLanes) {
      const Lanes x = logits_at(row + i, end - i);
      tops = x > tops ? x : tops;
    }
    const float before = largest;
    for (int64_t i = 0; i < kLanes; ++i) largest = std::max(largest, tops[i]);
    const float taken_off = largest == -kInfinity ? 0.0f : largest;
    for (int64_t i = start; i < end; i += kLanes) sums += weight_of(logits_at(row + i, end - i) - taken_off);
    total = total * std::exp(before - taken_off) + sum(sums);
  }
  return {largest, std::isfinite(largest) ? std::log(total) : std::nanf("")};
}

// (softmax, less 1 at the target) times the factor; no class is the target where that is none of them. What a large normaliser has
// lost is found by the sum of the weights that it gives.
void gradient_of(const float* row, float normaliser, int64_t target, float factor, int64_t width, float* to) {
  const float chosen = target >= 0 && target < width ? row[target] : 0.0f;
  float total = 1.0f;
  if (std::abs(normaliser) > kLarge) {
    Lanes sums = {};
    for (int64_t i = 0; i < width; i += kLanes) sums += weight_of(logits_at(row + i, width - i) - normaliser);
    total = sum(sums);
  }
  const float share = factor / total;
  for (int64_t i = 0; i < width; i += kLanes) {
    const Lanes weights = weight_of(logits_at(row + i, width - i) - normaliser) * share;
    put(to + i, weights, width - i);
  }
  if (target >= 0 && target < width) to[target] = std::exp(chosen - normaliser) * share - factor;
}

std::string complaint(const Array& logits, const Array& of_rows) {
  if (logits.dimensions().size() != 2) return "the logits have shape " + shape_of(logits) + "; expected [rows,classes]";
  if (!is_shape(of_rows, {logits.dimensions()[0]}))
    return "what there is one of for each row has shape " + shape_of(of_rows) + "; expected [" + std::to_string(logits.dimensions()[0]) + "]";
  return "";
}

std::string complaint(const Array& logits, const Classes& targets) {
  if (targets.dimensions().size() == 1 && targets.dimensions()[0] == logits.dimensions()[0]) return "";
  return "there are " + std::to_string(targets.element_count()) + " targets; expected one of each row";
}

// Also what each is above the logit of the target, or above 0 where that is no class: so nothing else reads the logits before the
// gradient takes their place. A large logit meets that of the target before the logarithm, which would be lost beside it.
ffi::Error cross_entropy(ffi::ThreadPool pool, Array logits, Classes targets, Result normalisers, Result above) {
  for (const Array& made : {*normalisers, *above})
    if (auto words = complaint(logits, made); !words.empty()) return refused(words);
  if (auto words = complaint(logits, targets); !words.empty()) return refused(words);
  const int64_t rows = logits.dimensions()[0], width = logits.dimensions()[1];
  parallel_for(pool, rows, rows_at_once(width), [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const float* x = logits.typed_data() + row * width;
      const int64_t target = targets.typed_data()[row];
      const Normaliser found = normaliser_of(x, width);
      const float chosen = target >= 0 && target < width ? x[target] : 0.0f;
      normalisers->typed_data()[row] = found.whole();
      above->typed_data()[row] = found.logarithm + (found.largest - chosen);
    }
  });
  return ffi::Error::Success();
}

// After the factor of each row comes its normaliser, or nothing: then that is computed again.
ffi::Error cross_entropy_gradient(ffi::ThreadPool pool, Array logits, Classes targets, Array factors, ffi::RemainingArgs handed,
                                  Result made) {
  if (auto words = complaint(logits, factors); !words.empty()) return refused(words);
  const int64_t rows = logits.dimensions()[0], width = logits.dimensions()[1];
  if (auto words = complaint(logits, targets); !words.empty()) return refused(words);
  if (!is_shape(*made, {rows, width})) return refused("the result has shape " + shape_of(*made) + "; expected that of the logits");
  const float* known = nullptr;
  if (handed.size() > 1) return refused("after the factors come " + std::to_string(handed.size()) + " arrays; expected one or none");
  if (handed.size()) {
    auto normalisers = handed.get<Array>(0);
    if (!normalisers) return normalisers.error();
    if (auto words = complaint(logits, *normalisers); !words.empty()) return refused(words);
    known = normalisers->typed_data();
  }
  ask_for_huge_pages_of(made);
  const float *from = logits.typed_data(), *factor = factors.typed_data();
  parallel_for(pool, rows, rows_at_once(width), [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const float* x = from + row * width;
      gradient_of(x, known ? known[row] : normaliser_of(x, width).whole(), targets.typed_data()[row], factor[row], width,
                  made->typed_data() + row * width);
    }
  });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace pcp

PCP_HANDLER(pcp_cross_entropy, pcp::cross_entropy);
PCP_HANDLER(pcp_cross_entropy_gradient, pcp::cross_entropy_gradient);
