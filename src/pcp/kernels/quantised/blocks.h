// Products of a few rows with weights of int8 or int4 by integers. With int4 a row is rounded to multiples of a scale for each block of 32 numbers, as weights
// have one, so a block of both is a sum of integers times two scales. The multiples are written in digits of 256, which are signed bytes:
// one digit is a lower precision; three are 24 bits, as float32 has, of the largest number of the block. With int8, whose scale is that of a
// row, it is one digit and a scale for 128 numbers.
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
constexpr int kExact = 3;  // digits

template <int kDigits>
struct RoundedBlocks {
  alignas(64) int8_t halves[kDigits][2][kBlocks * kHalf];  // of the highest digits first
  int32_t offsets[kLanes];                                // weights are stored 8 too large: what that adds, below zero
  float scales[kLanes];
};

// Rounds a block to three digits for each number, times a scale, which it returns: NaN if that would not be as exact as float32 is.
inline float to_digits(const float* from, int8_t (*to)[kBlock]) {
  typedef int8_t Bytes __attribute__((vector_size(kLanes)));
  constexpr float kLargest = 8355000, kSmallest = 1e-30f;  // 127 * 65536 + 127 * 256 + 127 can be written, and some less
  const float largest = largest_of(from, kBlock);
  if (largest == 0) {
    std::memset(to, 0, kExact * sizeof *to);
    return 0;
  }
  if (!(largest >= kSmallest && largest <= FLT_MAX)) return NAN;
  const float times = kLargest / largest;
  for (int64_t half = 0; half < 2; ++half) {
    const Lanes x = load(from + half * kLanes) * times, zero = {};
    Wide rest = __builtin_convertvector(x + (x < zero ? zero - 0.5f : zero + 0.5f), Wide);
    for (int digit = kExact - 1; digit >= 0; --digit) {
      const Wide lowest = (rest << 24) >> 24;
      const Bytes bytes = __builtin_convertvector(lowest, Bytes);
      std::memcpy(to[digit] + half * kHalf, &bytes, sizeof bytes);
      rest = (rest - lowest) >> 8;
    }
  }
  return largest / kLargest;
}

// A row as blocks; what is missing in the last four of them is 0. False if some block cannot be written so.
template <int kDigits>
bool round_blocks(const float* x, int64_t inner, RoundedBlocks<kDigits>* to) {
  static_assert(kDigits == 1 || kDigits == kExact);
  for (int64_t begin = 0; begin < inner; begin += kBlocks * kBlock, ++to) {
    std::memset(to, 0, sizeof *to);
    for (int64_t block = 0; block < kBlocks && begin + block * kBlock < inner; ++block) {
      int8_t digits[kDigits][kBlock];
      const float* from = x + begin + block * kBlock;
      float scale;
      if constexpr (kDigits == 1)
        scale = to_bytes(from, kBlock, digits[0]);
      else if (std::isnan(scale = to_digits(from, digits)))
        return false;
      for (int digit = 0; digit < kDigits; ++digit)
        for (int64_t half = 0; half < 2; ++half)
          std::memcpy(to->halves[digit][half] + block * kHalf, digits[digit] + half * kHalf, kHalf);
      for (int64_t lane = 4 * block; lane < 4 * block + 4; ++lane) to->scales[lane] = scale;
    }
    for (int64_t lane = 0; lane < kLanes; ++lane)
      for (int64_t i = 4 * lane; i < 4 * lane + 4; ++i) {
        int32_t numbers = 0;
        for (int digit = 0; digit < kDigits; ++digit) numbers = numbers * 256 + to->halves[digit][0][i] + to->halves[digit][1][i];
        to->offsets[lane] -= 8 * numbers;
      }
  }
  return true;
}

#if defined(__AVX512F__)
// Adds to each lane the products of four bytes, those of weights unsigned.
[[gnu::always_inline]] inline __m512i add_products(__m512i sums, __m512i weights, const int8_t* digits) {
  // By its name: that the processor has it is asked when it runs.
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(weights), "m"(*reinterpret_cast<const __m512i*>(digits)));
  return sums;
}

// What four blocks of a row give with four blocks of weights, given as the first and the second half of each, in lanes. A lane adds up
// eight products, which are below 2^30 even in three digits, so sums of higher digits are only shifted.
template <int kDigits>
[[gnu::always_inline]] inline __m512 integer_product(const RoundedBlocks<kDigits>& x, __m512i first, __m512i second, __m512 scales) {
  __m512i sums = _mm512_setzero_si512();
#pragma GCC unroll 3
  for (int digit = 0; digit < kDigits; ++digit) {
    if (digit) sums = _mm512_slli_epi32(sums, 8);
    sums = add_products(add_products(sums, first, x.halves[digit][0]), second, x.halves[digit][1]);
  }
  sums = _mm512_add_epi32(sums, _mm512_loadu_si512(x.offsets));
  return _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_loadu_ps(x.scales)), scales);
}
#endif

// The same of kCount rows, whose blocks lie `apart`, and of `count` blocks of weights that are there.
template <bool kFast, int kCount, int kDigits>
[[gnu::always_inline]] inline void add_blocks(const RoundedBlocks<kDigits>* x, int64_t apart, const uint8_t* weights, const float* scales,
                                              int64_t count, Lanes (*to)[2], int chain) {
#if defined(__AVX512F__)
  if constexpr (kFast) {
    const bool whole = count == kBlocks;
    const auto there = static_cast<__mmask16>((1u << 4 * count) - 1), of_scales = static_cast<__mmask16>((1u << count) - 1);
    const __m512i both = whole ? _mm512_loadu_si512(weights) : _mm512_maskz_loadu_epi32(there, weights);
    const __m512 found = whole ? _mm512_castps128_ps512(_mm_loadu_ps(scales)) : _mm512_maskz_loadu_ps(of_scales, scales);
    const __m512i lanes = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0), low = _mm512_set1_epi32(0x0f0f0f0f);
    const __m512i first = _mm512_and_si512(both, low), second = _mm512_and_si512(_mm512_srli_epi32(both, 4), low);
    const __m512 spread = _mm512_permutexvar_ps(lanes, found);
#pragma GCC unroll 4
    for (int row = 0; row < kCount; ++row) to[row][chain] += (Lanes)integer_product(x[row * apart], first, second, spread);
    return;
  }
#endif
  for (int row = 0; row < kCount; ++row) {
    const RoundedBlocks<kDigits>& of = x[row * apart];
    Lanes found = {};
    for (int64_t lane = 0; lane < 4 * count; ++lane) {
      int32_t sum = 0;
      for (int digit = 0; digit < kDigits; ++digit) {
        sum *= 256;
        for (int64_t i = 4 * lane; i < 4 * lane + 4; ++i)
          sum += (weights[i] & 15) * of.halves[digit][0][i] + (weights[i] >> 4) * of.halves[digit][1][i];
      }
      found[lane] = static_cast<float>(sum + of.offsets[lane]) * (of.scales[lane] * scales[lane / 4]);
    }
    to[row][chain] += found;
  }
}

// The products of kCount rows with an output.
template <bool kFast, int kCount, int kDigits>
inline void sums_by_blocks(const RoundedBlocks<kDigits>* x, int64_t apart, const uint8_t* weights, const float* scales, int64_t inner,
                           float* to) {
  constexpr int64_t kAhead = 4096, kLine = 64;  // bytes; see `quantised.cc`
  Lanes chains[kCount][2] = {};
  const auto add = [&](int chain, int64_t block, int64_t count) {
    __builtin_prefetch(weights + block * kHalf + kAhead);
    __builtin_prefetch(scales + block + kAhead / kLine * kBlocks);
    add_blocks<kFast, kCount>(x + block / kBlocks, apart, weights + block * kHalf, scales + block, count, chains, chain);
  };
  const int64_t blocks = inner / kBlock;
  int64_t block = 0;
  for (; block + 2 * kBlocks <= blocks; block += 2 * kBlocks) {
    add(0, block, kBlocks);
    add(1, block + kBlocks, kBlocks);
  }
  for (; block < blocks; block += kBlocks) add(0, block, std::min(kBlocks, blocks - block));
  for (int row = 0; row < kCount; ++row) to[row] = sum(chains[row][0] + chains[row][1]);
}

// Numbers of a row as bytes, with their scale. What is missing in the last of them is 0.
constexpr int64_t kBytes = 128, kOfLane = 4;
struct RoundedBytes {
  alignas(64) int8_t numbers[kBytes];
  int32_t offsets[kLanes];  // weights are made 128 larger, so that they are unsigned: what that adds, below zero
  float scale;
};

inline void round_bytes(const float* x, int64_t inner, RoundedBytes* to) {
  for (int64_t begin = 0; begin < inner; begin += kBytes, ++to) {
    std::memset(to, 0, sizeof *to);
    to->scale = to_bytes(x + begin, std::min(kBytes, inner - begin), to->numbers);
    for (int64_t i = 0; i < kBytes; ++i) to->offsets[i / kOfLane % kLanes] -= 128 * to->numbers[i];
  }
}

// What `count` numbers of a row give with as many weights, in lanes.
template <bool kFast>
[[gnu::always_inline]] inline Lanes product_of_bytes(const RoundedBytes& x, const int8_t* weights, int64_t count) {
  Wide sums;
  std::memcpy(&sums, x.offsets, sizeof sums);
#if defined(__AVX512F__) && defined(__AVX512BW__)
  if constexpr (kFast) {
    constexpr int64_t kLine = 64;
    const __m512i flipped = _mm512_set1_epi8(static_cast<char>(0x80));
    for (int64_t i = 0; i < kBytes && i < count; i += kLine) {
      const __mmask64 there = count - i < kLine ? (__mmask64{1} << (count - i)) - 1 : ~__mmask64{0};
      const __m512i here = count - i < kLine ? _mm512_maskz_loadu_epi8(there, weights + i) : _mm512_loadu_si512(weights + i);
      sums = (Wide)add_products((__m512i)sums, _mm512_xor_si512(here, flipped), x.numbers + i);
    }
    return __builtin_convertvector(sums, Lanes) * x.scale;
  }
#endif
  for (int64_t i = 0; i < kBytes; ++i)
    sums[i / kOfLane % kLanes] += ((i < count ? weights[i] : 0) + 128) * x.numbers[i];
  return __builtin_convertvector(sums, Lanes) * x.scale;
}

template <bool kFast>
inline float sum_by_bytes(const RoundedBytes* x, const int8_t* weights, int64_t inner) {
  constexpr int64_t kAhead = 4096, kLine = 64;
  Lanes chains[2] = {};
  const auto add = [&](Lanes& chain, int64_t begin, int64_t count) {
    for (int64_t byte = 0; byte < kBytes; byte += kLine) __builtin_prefetch(weights + begin + byte + kAhead);
    chain += product_of_bytes<kFast>(x[begin / kBytes], weights + begin, count);
  };
  int64_t begin = 0;
  for (; begin + 2 * kBytes <= inner; begin += 2 * kBytes) {
    add(chains[0], begin, kBytes);
    add(chains[1], begin + kBytes, kBytes);
  }
  for (; begin < inner; begin += kBytes) add(chains[0], begin, std::min(kBytes, inner - begin));
  return sum(chains[0] + chains[1]);
}

}  // namespace pcp
