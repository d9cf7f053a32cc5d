// A list of elementwise steps over contiguous arrays, for programs so small that calling each step would take longer than the step.
#include <cmath>
#include <cstdint>
#include <initializer_list>

namespace {

enum Operation : int32_t { kAdd, kSubtract, kMultiply, kDivide, kMaximum, kMinimum, kNegate, kAbs, kSqrt, kTanh };
enum Type : int32_t { kFloat, kDouble };

// As `_STEP` of native.py lays it out. `repeats` says whose one element stands for all: 1 of the left operand, 2 of the right one.
struct Step {
  int32_t operation, type, repeats, unused;
  int64_t count;
  const void *left, *right;
  void *out;
};

// The elements may be written over those of an operand, each when it has been read.
template <typename T, typename F>
void apply(const Step &step, F function) {
  const T *left = static_cast<const T *>(step.left), *right = static_cast<const T *>(step.right);
  T *out = static_cast<T *>(step.out);
  const int64_t n = step.count;
  if (step.repeats == 0) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = function(left[i], right[i]);
  } else if (step.repeats == 1) {
    const T x = *left;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = function(x, right[i]);
  } else if (step.repeats == 2) {
    const T y = *right;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = function(left[i], y);
  } else {
    const T value = function(*left, *right);
    for (int64_t i = 0; i < n; ++i) out[i] = value;
  }
}

// To some units in the last place. Source: the rational approximation of Eigen, Eigen/src/Core/MathFunctionsImpl.h, ptanh_float.
inline float tanh_of(float x) {
  const float bounded = x < -7.90531110763549805f ? -7.90531110763549805f : x > 7.90531110763549805f ? 7.90531110763549805f : x;
  const float y = bounded * bounded;
  float p = -2.76076847742355e-16f;
  for (float next : {2.00018790482477e-13f, -8.60467152213735e-11f, 5.12229709037114e-08f, 1.48572235717979e-05f,
                     6.37261928875436e-04f, 4.89352455891786e-03f})
    p = p * y + next;
  float q = 1.19825839466702e-06f;
  for (float next : {1.18534705686654e-04f, 2.26843463243900e-03f, 4.89352518554385e-03f}) q = q * y + next;
  return std::fabs(x) < 0.0004f ? x : bounded * p / q;
}

template <typename T>
void run(const Step &step) {
  switch (step.operation) {
    case kAdd:
      return apply<T>(step, [](T x, T y) { return x + y; });
    case kSubtract:
      return apply<T>(step, [](T x, T y) { return x - y; });
    case kMultiply:
      return apply<T>(step, [](T x, T y) { return x * y; });
    case kDivide:
      return apply<T>(step, [](T x, T y) { return x / y; });
    case kMaximum:  // NaN where one is
      return apply<T>(step, [](T x, T y) { return x > y || x != x ? x : y; });
    case kMinimum:
      return apply<T>(step, [](T x, T y) { return x < y || x != x ? x : y; });
    case kNegate:
      return apply<T>(step, [](T x, T) { return -x; });
    case kAbs:
      return apply<T>(step, [](T x, T) { return std::fabs(x); });
    case kSqrt:
      return apply<T>(step, [](T x, T) { return std::sqrt(x); });
    case kTanh:
      return apply<float>(step, [](float x, float) { return tanh_of(x); });
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void pcp_run_steps(const Step *steps, int64_t count) {
  for (const Step *step = steps; step != steps + count; ++step) step->type == kFloat ? run<float>(*step) : run<double>(*step);
}
