// The registers that hold a block of sums, and what turns words about in them.
#pragma once

#include <cstdint>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace pcp {

// The innermost loop keeps kHigh rows and kWide columns of sums in registers: 28 of 32 of AVX-512, 12 of 16 of AVX2 or SSE.
#if defined(__AVX512F__) || defined(PCP_EMULATED_TILES)
constexpr int kRegister = 16, kHigh = 14;
#elif defined(__AVX2__)
constexpr int kRegister = 8, kHigh = 6;
#else
constexpr int kRegister = 4, kHigh = 6;
#endif
constexpr int kWide = 2 * kRegister;
typedef float Register __attribute__((vector_size(kRegister * sizeof(float))));
typedef Register Sums[kHigh][2];

constexpr int64_t divided_up(int64_t count, int64_t by) { return (count + by - 1) / by; }

#if defined(__AVX512F__)
inline __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : count > 0 ? (1 << count) - 1 : 0);
}

// Sixteen by sixteen words: rows become columns.
inline void transpose(__m512i r[16]) {
  __m512i t[16];
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}
#endif

// A number of bfloat16 as it lies in memory: the upper half of one of float32.
struct Bf16 {
  uint16_t bits;
};

}  // namespace pcp
