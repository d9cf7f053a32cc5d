// AdamW over all parameters of a model at once: every element is read and written once, and arrays may be updated in place.
//
// Handlers are called by whatever program names them, so they look at every shape and attribute before they touch memory.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "arrays.h"
#include "rows.h"

namespace ffi = xla::ffi;

namespace pcp {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements of a part of the work: four arrays of them fit into the second cache
constexpr size_t kTaken = 4, kMade = 3;
constexpr int64_t kCoefficients = 10;

ffi::Error refused(const std::string& words) {
  return refused_by("adamw", words);
}

struct Coefficients {
  float scale, keep1, new1, keep2, new2, correction1, correction2, epsilon, decay, rate;
};

static_assert(sizeof(Coefficients) == kCoefficients * sizeof(float));

struct Update {
  const float *parameter, *gradient, *first, *second;
  float *parameter_out, *first_out, *second_out;
  int64_t size;
  Coefficients by;
};

struct Part {
  const Update* of;
  int64_t first, last;
};

inline Lanes root(Lanes x) {
  for (int64_t i = 0; i < kLanes; ++i) x[i] = std::sqrt(x[i]);
  return x;
}

inline float root(float x) { return std::sqrt(x); }

// The operations, and their order, are those of `pcp.optimizers.adamw`.
template <typename Number>
inline void step(Number& p, Number g, Number& m, Number& v, const Coefficients& by) {
  g = g * by.scale;
  m = by.keep1 * m + by.new1 * g;
  v = by.keep2 * v + by.new2 * (g * g);
  const Number direction = (m / by.correction1) / (root(v / by.correction2) + by.epsilon) + by.decay * p;
  p = p - by.rate * direction;
}

void run(const Part& part) {
  const Update& u = *part.of;
  int64_t i = part.first;
  for (; i + kLanes <= part.last; i += kLanes) {
    Lanes p = load(u.parameter + i), m = load(u.first + i), v = load(u.second + i);
    step(p, load(u.gradient + i), m, v, u.by);
    store(u.parameter_out + i, p);
    store(u.first_out + i, m);
    store(u.second_out + i, v);
  }
  for (; i < part.last; ++i) {
    float p = u.parameter[i], m = u.first[i], v = u.second[i];
    step(p, u.gradient[i], m, v, u.by);
    u.parameter_out[i] = p;
    u.first_out[i] = m;
    u.second_out[i] = v;
  }
}

bool has_shape_of(const Array& a, const Array& b) {
  const auto x = a.dimensions(), y = b.dimensions();
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

// Takes parameter, gradient, first and second moment of each array, then vectors of coefficients; `coefficients` says for each
// array which of them is its own. Makes parameter, first and second moment of each.
ffi::Error adamw(ffi::ThreadPool pool, ffi::RemainingArgs taken, ffi::RemainingRets made,
                 ffi::Span<const int64_t> coefficients) {
  const size_t count = coefficients.size();
  if (made.size() != kMade * count || taken.size() < kTaken * count)
    return refused(std::to_string(taken.size()) + " arrays come in and " + std::to_string(made.size()) + " go out for " +
                   std::to_string(count) + " parameters; expected 4 and 3 for each, and coefficients");
  std::vector<Coefficients> vectors;
  for (size_t i = kTaken * count; i < taken.size(); ++i) {
    const auto vector = taken.get<Array>(i);
    if (!vector || vector->dimensions().size() != 1 || vector->dimensions()[0] != kCoefficients)
      return refused("coefficients are not float32 of shape [" + std::to_string(kCoefficients) + "]");
    Coefficients by;
    std::memcpy(&by, vector->typed_data(), sizeof by);
    vectors.push_back(by);
  }
  std::vector<Update> updates;
  std::vector<Part> parts;
  updates.reserve(count);  // parts point at them
  for (size_t k = 0; k < count; ++k) {
    const auto parameter = taken.get<Array>(kTaken * k), gradient = taken.get<Array>(kTaken * k + 1),
               first = taken.get<Array>(kTaken * k + 2), second = taken.get<Array>(kTaken * k + 3);
    auto p = made.get<Array>(kMade * k), m = made.get<Array>(kMade * k + 1), v = made.get<Array>(kMade * k + 2);
    const std::string which = "of parameter " + std::to_string(k);
    if (!parameter || !gradient || !first || !second || !p || !m || !v)
      return refused("an array " + which + " is not float32");
    for (const auto* each : {&*gradient, &*first, &*second})
      if (!has_shape_of(*each, *parameter)) return refused("the arrays " + which + " have unlike shapes");
    for (auto* each : {&**p, &**m, &**v})
      if (!has_shape_of(*each, *parameter)) return refused("the results " + which + " have unlike shapes");
    if (coefficients[k] < 0 || coefficients[k] >= static_cast<int64_t>(vectors.size()))
      return refused("the coefficients " + which + " are number " + std::to_string(coefficients[k]) + "; there are " +
                     std::to_string(vectors.size()));
    const int64_t size = static_cast<int64_t>(parameter->element_count());
    updates.push_back({parameter->typed_data(), gradient->typed_data(), first->typed_data(), second->typed_data(),
                       (*p)->typed_data(), (*m)->typed_data(), (*v)->typed_data(), size, vectors[coefficients[k]]});
    for (int64_t at = 0; at < size; at += kGrain) parts.push_back({&updates.back(), at, std::min(size, at + kGrain)});
  }
  parallel_for(pool, static_cast<int64_t>(parts.size()), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) run(parts[i]);
  });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace pcp

PCP_HANDLER(pcp_adamw, pcp::adamw, "coefficients");
