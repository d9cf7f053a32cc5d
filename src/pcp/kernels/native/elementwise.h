// Activation functions of vectors of float32, as many at once as a register or several hold: one exponential for each element.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

namespace pcp {

constexpr float kCubic = 0.044715f, kScale = 1.5957691216f;  // of the cube, and twice the root of 2 / pi
constexpr float kQuick = 1.702f;

// What kernels are told to apply; those in Python name them by these numbers.
enum class Activation : int64_t { none, tanh_gelu, exact_gelu, silu, relu, quick_gelu, squared_relu, count };

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

// The derivative of x times the logistic function of y(x), from that function and the derivative of y.
template <typename V>
inline V slope_of_logistic(V x, V share, V of_inner) { return share + x * share * (1.0f - share) * of_inner; }

// How likely it is that a normal variable is beyond |x|, from t = 1 / (1 + |x| / sqrt(8)) and e^(-x^2 / 2): a polynomial of t with a
// relative error of 4.3e-8, fitted to erfc(z) e^(z^2) / 2 for z up to 9.5.
template <typename V>
inline V tail_of(V t, V e) {
  V p = V{} - 2.9445057428e-2f;
  for (float next : {1.4184957598e-1f, -2.4268934717e-1f, 1.3798665644e-1f, -1.2587465949e-2f, 1.0103445174e-1f, 1.2163059355e-1f,
                     1.4117673328e-1f, 1.4104383851e-1f})
    p = p * t + next;
  return p * t * e;
}

// How likely it is that a normal variable is below x, from e^(-x^2 / 2).
template <typename V>
inline V normal_of(V x, V e) {
  const V tail = tail_of(1.0f / (1.0f + 0.35355339059327376f * (x < 0.0f ? -x : x)), e);
  return x < 0.0f ? tail : 1.0f - tail;
}

template <typename V>
inline V rectified(V x) { return x <= 0.0f ? V{} : x; }

template <typename V>
inline V activated(Activation by, V x) {
  switch (by) {
    case Activation::tanh_gelu:
      return x / (1.0f + decay(x));
    case Activation::exact_gelu:
      return x * normal_of(x, weight_of(x * x * -0.5f));
    case Activation::silu:
      return x / (1.0f + exponential(-x));
    case Activation::quick_gelu:
      return x / (1.0f + exponential(x * -kQuick));
    case Activation::relu:
      return rectified(x);
    case Activation::squared_relu:
      return rectified(x) * rectified(x);
    default:
      return x;
  }
}

// The derivative of `activated` by x.
template <typename V>
inline V slope_of(Activation by, V x) {
  switch (by) {
    case Activation::tanh_gelu:
      return slope_of_logistic(x, 1.0f / (1.0f + decay(x)), kScale * (1.0f + 3.0f * kCubic * x * x));
    case Activation::exact_gelu: {
      const V e = weight_of(x * x * -0.5f);
      return normal_of(x, e) + x * e * 0.3989422804f;
    }
    case Activation::silu:
      return slope_of_logistic(x, 1.0f / (1.0f + exponential(-x)), V{} + 1.0f);
    case Activation::quick_gelu:
      return slope_of_logistic(x, 1.0f / (1.0f + exponential(x * -kQuick)), V{} + kQuick);
    case Activation::squared_relu:
      return 2.0f * rectified(x);
    case Activation::relu:
      return x <= 0.0f ? V{} : V{} + 1.0f;
    default:
      return V{} + 1.0f;
  }
}

}  // namespace pcp
