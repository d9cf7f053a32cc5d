// Activation functions of vectors of float32, as many at once as a register or several hold: one exponential for each element.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

namespace pcp {

constexpr float kCubic = 0.044715f, kScale = 1.5957691216f;  // of the cube, and twice the root of 2 / pi

// What a product's kernel is told to apply; kernels in Python name them by these numbers.
enum class Activation : int64_t { none, gelu, exact_gelu, silu, relu, count };

// e^x to two units in the last place, infinite from 88 on. Source: Moshier, "Cephes mathematical library", expf.
template <typename V>
inline V exponential(V x) {
  const V bounded = x < -87.0f ? V{} - 87.0f : x > 88.0f ? V{} + 88.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: what is added to it has no fraction left
  const V shifted = bounded * 1.44269504088896341f + kRound;
  const V n = shifted - kRound;
  const V r = bounded - n * 0.693359375f + n * 2.12194440e-4f;
  V p = V{} + 1.9875691500e-4f;
  for (float next : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = p * r + next;
  p = p * r * r + r + 1.0f;
  decltype(x < x) power;
  std::memcpy(&power, &shifted, sizeof power);
  power = (power - 0x4B400000 + 127) << 23;
  V scale;
  std::memcpy(&scale, &power, sizeof scale);
  return x > 88.0f ? V{} + std::numeric_limits<float>::infinity() : p * scale;
}

// e^x for x up to 88, and 0 below -87; it takes half as many instructions as `exponential`. e^x is 2^r times a power of two, with r from
// -1/2 to 1/2, and a polynomial of r has a relative error of 9.2e-8 at most.
template <typename V>
inline V weight_of(V x) {
  constexpr float kBits = 1.44269504088896341f, kRound = 12582912.0f + 127.0f;  // 1.5 * 2^23, as above, and the bias of an exponent
  const V shifted = x * kBits + kRound;
  const V r = x * kBits - (shifted - kRound);
  V p = V{} + 1.3264727247e-3f;
  for (float next : {9.6715126882e-3f, 5.5507337436e-2f, 2.4022242085e-1f, 6.9314697760e-1f, 1.0f}) p = p * r + next;
  decltype(x < x) power;
  std::memcpy(&power, &shifted, sizeof power);
  power <<= 23;
  V scale;
  std::memcpy(&scale, &power, sizeof scale);
  return x < -87.0f ? V{} : p * scale;
}

// 1 + tanh(y) is 2 / (1 + e^(-2y)), so GELU is x / (1 + e^(-2y)) with y = sqrt(2 / pi) (x + 0.044715 x^3).
template <typename V>
inline V decay(V x) { return exponential(x * (1.0f + kCubic * x * x) * -kScale); }

template <typename V>
inline V gelu_of(V x) { return x / (1.0f + decay(x)); }

template <typename V>
inline V slope_of(V x) {
  const V share = 1.0f / (1.0f + decay(x));
  return share + x * share * (1.0f - share) * kScale * (1.0f + 3.0f * kCubic * x * x);
}

// Half of x times erfc(-x / sqrt(2)). Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 1964, 7.1.26.
template <typename V>
inline V exact_gelu_of(V x) {
  const V z = (x < 0.0f ? -x : x) * 0.70710678118654752f;
  const V t = 1.0f / (1.0f + 0.3275911f * z);
  V p = V{} + 1.061405429f;
  for (float next : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f}) p = p * t + next;
  const V tail = 0.5f * p * t * exponential(-z * z);  // how likely it is that a normal variable is beyond |x|
  return x * (x < 0.0f ? tail : 1.0f - tail);
}

template <typename V>
inline V silu_of(V x) {
  return x / (1.0f + exponential(-x));
}

template <typename V>
inline V activated(Activation by, V x) {
  switch (by) {
    case Activation::gelu:
      return gelu_of(x);
    case Activation::exact_gelu:
      return exact_gelu_of(x);
    case Activation::silu:
      return silu_of(x);
    case Activation::relu:
      return x <= 0.0f ? V{} : x;
    default:
      return x;
  }
}

}  // namespace pcp
