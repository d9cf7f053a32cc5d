// Products of a few rows with weights of int4 by integers: a row is rounded to bytes with a scale for each block of 32 numbers, as
// weights have one, so a block of both is a sum of integers times two scales.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "../native/panels/bytes.h"
#include "stored.h"

namespace pcp {

// Four blocks lie together, as 64 bytes of weights do: first all first halves, then all second halves. Lane i of sixteen belongs to
// block i / 4 of the four.
constexpr int64_t kBlocks = 4, kHalf = kBlock / 2;

struct RoundedBlocks {
  alignas(64) int8_t halves[2][kBlocks * kHalf];
  int32_t offsets[kLanes];  // weights are stored 8 too large: what that adds, below zero
  float scales[kLanes];
};

// A row as blocks; what is missing in the last four of them is 0.
inline void round_blocks(const float* x, int64_t inner, RoundedBlocks* to) {
  for (int64_t begin = 0; begin < inner; begin += kBlocks * kBlock, ++to) {
    std::memset(to, 0, sizeof *to);
    for (int64_t block = 0; block < kBlocks && begin + block * kBlock < inner; ++block) {
      int8_t bytes[kBlock];
      const float scale = to_bytes(x + begin + block * kBlock, kBlock, bytes);
      for (int64_t half = 0; half < 2; ++half) std::memcpy(to->halves[half] + block * kHalf, bytes + half * kHalf, kHalf);
      for (int64_t lane = 4 * block; lane < 4 * block + 4; ++lane) to->scales[lane] = scale;
    }
    for (int64_t lane = 0; lane < kLanes; ++lane)
      for (int64_t half = 0; half < 2; ++half)
        for (int64_t i = 4 * lane; i < 4 * lane + 4; ++i) to->offsets[lane] -= 8 * to->halves[half][i];
  }
}

// What four blocks of a row give with four blocks of weights, of which `count` are there, in lanes.
template <bool kFast>
[[gnu::always_inline]] inline Lanes product_of_blocks(const RoundedBlocks& x, const uint8_t* weights, const float* scales, int64_t count) {
#if defined(__AVX512F__)
  if constexpr (kFast) {
    const __mmask16 there = static_cast<__mmask16>((1u << 4 * count) - 1);
    const __m512i both = _mm512_maskz_loadu_epi32(there, weights), low = _mm512_set1_epi32(0x0f0f0f0f);
    __m512i sums = _mm512_loadu_si512(x.offsets);
    // By its name: that the processor has it is asked when it runs.
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(_mm512_and_si512(both, low)), "m"(x.halves[0]));
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(_mm512_and_si512(_mm512_srli_epi32(both, 4), low)), "m"(x.halves[1]));
    const __m512i lanes = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    const __m512 found = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), scales);
    return (Lanes)_mm512_mul_ps(_mm512_cvtepi32_ps(sums),
                                _mm512_mul_ps(_mm512_loadu_ps(x.scales), _mm512_permutexvar_ps(lanes, found)));
  }
#endif
  Lanes found = {};
  for (int64_t lane = 0; lane < 4 * count; ++lane) {
    int32_t sum = x.offsets[lane];
    for (int64_t i = 4 * lane; i < 4 * lane + 4; ++i) sum += (weights[i] & 15) * x.halves[0][i] + (weights[i] >> 4) * x.halves[1][i];
    found[lane] = static_cast<float>(sum) * (x.scales[lane] * scales[lane / 4]);
  }
  return found;
}

// The product of a row with an output.
template <bool kFast>
inline float sum_by_blocks(const RoundedBlocks* x, const uint8_t* weights, const float* scales, int64_t inner) {
  constexpr int64_t kAhead = 4096, kLine = 64;  // bytes; see `quantised.cc`
  Lanes chains[2] = {};
  const int64_t blocks = inner / kBlock, whole = blocks / kBlocks * kBlocks;
  int64_t block = 0;
  for (; block < whole; block += kBlocks, ++x) {
    __builtin_prefetch(weights + block * kHalf + kAhead);
    __builtin_prefetch(scales + block + kAhead / kLine * kBlocks);
    chains[block / kBlocks % 2] += product_of_blocks<kFast>(*x, weights + block * kHalf, scales + block, kBlocks);
  }
  if (block < blocks) chains[0] += product_of_blocks<kFast>(*x, weights + block * kHalf, scales + block, blocks - block);
  return sum(chains[0] + chains[1]);
}

}  // namespace pcp
