// Panels of integers of one byte: a word is four of them that follow each other in the inner dimension. Those of the left operand have
// 128 added, as the instruction multiplies unsigned by signed bytes; what that adds to a sum is known from the right panel alone.
//
// Numbers of a panel are integers times a scale: of each row on the left, of each column on the right. Scales stand before the words.
//
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VPDPBUSD.
#pragma once

#include <cfloat>
#include <cmath>

#include "../rows.h"
#include "../scratch.h"
#include "panels.h"

namespace pcp {

// Copies a panel of rows of `bytes` bytes that lie `apart` bytes apart, in words of four; `lanes` of them are there, the others are 0.
template <int kCount>
void copy_words(const uint8_t* at, int64_t apart, int64_t lanes, int64_t bytes, uint32_t* to) {
  const int64_t words = divided_up(bytes, 4);
#if defined(__AVX512F__) && defined(__AVX512BW__)
  for (int64_t w = 0; w < words; w += 16)
    for (int64_t l = 0; l < kCount; l += 16) {
      const int64_t rest = bytes - 4 * w, here = std::min(lanes, int64_t{kCount}) - l;
      const __mmask64 there = rest >= 64 ? ~__mmask64{0} : (__mmask64{1} << rest) - 1;
      __m512i block[16];
      for (int64_t i = 0; i < std::min<int64_t>(here, 16); ++i) __builtin_prefetch(at + (l + i) * apart + 4 * w + 128);
      for (int64_t i = 0; i < 16; ++i)
        block[i] = i < here ? _mm512_maskz_loadu_epi8(there, at + (l + i) * apart + 4 * w) : _mm512_setzero_si512();
      transpose(block);
      for (int64_t i = 0; i < std::min<int64_t>(16, words - w); ++i) {
        if (l + 16 <= kCount)
          _mm512_storeu_si512(to + (w + i) * kCount + l, block[i]);
        else
          _mm512_mask_storeu_epi32(to + (w + i) * kCount + l, first_lanes(kCount - l), block[i]);
      }
    }
#else
  for (int64_t w = 0; w < words; ++w)
    for (int64_t l = 0; l < kCount; ++l) {
      uint32_t word = 0;
      if (l < lanes) std::memcpy(&word, at + l * apart + 4 * w, std::min<int64_t>(4, bytes - 4 * w));
      to[w * kCount + l] = word;
    }
#endif
}

typedef uint32_t Bits __attribute__((vector_size(sizeof(Lanes))));

// The largest magnitude of some numbers: infinity or NaN if one of them is not finite.
inline float largest_of(const float* from, int64_t count) {
  Bits most = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    const Lanes x = part<Lanes>(from + i, count - i);
    Bits bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits &= 0x7fffffffu;
    most = bits > most ? bits : most;
  }
  uint32_t largest_bits = 0;
  for (int64_t i = 0; i < kLanes; ++i) largest_bits = std::max(largest_bits, most[i]);
  float largest;
  std::memcpy(&largest, &largest_bits, sizeof largest);
  return largest;
}

// Rounds numbers to integers from -127 to 127, to nearest, times a scale, which it returns: NaN if one of them is not finite.
inline float to_bytes(const float* from, int64_t count, int8_t* to) {
  typedef int8_t Bytes __attribute__((vector_size(kLanes)));
  const float largest = largest_of(from, count), scale = largest / 127;
  if (!(largest <= FLT_MAX) || scale < FLT_MIN) {
    std::memset(to, 0, count);
    return scale < FLT_MIN ? 0.0f : NAN;
  }
  const float times = 127 / largest;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: the lowest byte of what is added to it is the integer nearest
  for (int64_t i = 0; i < count; i += kLanes) {
    const Lanes shifted = part<Lanes>(from + i, count - i) * times + kRound;
    Bits bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    const Bytes bytes = __builtin_convertvector(bits, Bytes);
    std::memcpy(to + i, &bytes, std::min(kLanes, count - i));
  }
  return scale;
}

// Whether the processor has the instruction that multiplies four bytes of each lane by four others, and adds them up.
inline bool has_byte_products() {
#if defined(__AVX512F__)
  return __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

// As `Vectors`. kFast: by that instruction.
template <bool kFast>
struct Bytes : InRegisters<Quadruples<2048>> {
  static constexpr int64_t kScales = 16, kOffsets = kWide, kWords = kDeep / kNumbers;
  static_assert(kHigh <= kScales, "a scale for each row");
  static constexpr int64_t kLeft = kScales + kHigh * kWords, kRight = kWide + kOffsets + kWide * kWords;
  typedef int32_t Ints __attribute__((vector_size(sizeof(Register))));

  // The numbers of a row lie side by side.
  static void copy_left(const float* at, int64_t lane, int64_t, int64_t lanes, int64_t deep, Word* to) {
    int8_t rows[kHigh][kDeep];
    for (int64_t l = 0; l < kScales; ++l) {
      const float scale = l < lanes ? to_bytes(at + l * lane, deep, rows[l]) : 0.0f;
      std::memcpy(to + l, &scale, sizeof scale);
    }
    copy_words<kHigh>(reinterpret_cast<const uint8_t*>(rows), kDeep, lanes, deep, to + kScales);
    for (int64_t i = kScales; i < kScales + words(deep) * kHigh; ++i) to[i] ^= 0x80808080u;
  }

  static Word* words_of_right(Word* panel) { return panel + kWide + kOffsets; }

  // Puts scales and offsets before the words of a right panel.
  static void complete_right(const float* scales, int64_t lanes, int64_t deep, Word* to) {
    for (int64_t l = 0; l < kWide; ++l) {
      const float scale = l < lanes ? scales[l] : 0.0f;
      std::memcpy(to + l, &scale, sizeof scale);
    }
    Ints sums[2] = {};
    const Word* from = to + kWide + kOffsets;
    for (int64_t w = 0; w < words(deep); ++w, from += kWide)
      for (int half = 0; half < 2; ++half) sums[half] = dot(sums[half], 0x80808080u, from + half * kRegister);
    std::memcpy(to + kWide, sums, sizeof sums);
  }

  static void multiply_into(int64_t words, const Word* left, const Word* right, float* to, int64_t width, bool adds) {
    Register sums[kHigh][2];
    multiply_apart(words, left, right, sums, kHigh);
    write(sums, to, width, kHigh, kWide, adds);
  }

  static void multiply_apart(int64_t words, const Word* left, const Word* right, Register (*to)[2], int64_t) {
    Register scales[2];
    Ints offsets[2], sums[kHigh][2];
    std::memcpy(scales, right, sizeof scales);
    std::memcpy(offsets, right + kWide, sizeof offsets);
#pragma GCC unroll 16
    for (int i = 0; i < kHigh; ++i)
      for (int half = 0; half < 2; ++half) sums[i][half] = -offsets[half];
    const Word *of_left = left + kScales, *of_right = right + kWide + kOffsets;
    for (int64_t w = 0; w < words; ++w, of_left += kHigh, of_right += kWide)
#pragma GCC unroll 16
      for (int i = 0; i < kHigh; ++i) {
        sums[i][0] = dot(sums[i][0], of_left[i], of_right);
        sums[i][1] = dot(sums[i][1], of_left[i], of_right + kRegister);
      }
#pragma GCC unroll 16
    for (int i = 0; i < kHigh; ++i) {
      float scale;
      std::memcpy(&scale, left + i, sizeof scale);
      for (int half = 0; half < 2; ++half) to[i][half] = __builtin_convertvector(sums[i][half], Register) * (scales[half] * scale);
    }
  }

  // Adds to each lane the products of four bytes, the left ones unsigned.
  [[gnu::always_inline]] static Ints dot(Ints sums, Word left, const Word* right) {
#if defined(__AVX512F__)
    if constexpr (kFast) {
      __m512i total = (__m512i)sums;
      // By its name: that the processor has it is asked when it runs.
      __asm__("vpdpbusd %2, %1, %0" : "+v"(total) : "v"(_mm512_set1_epi32(static_cast<int>(left))), "v"(_mm512_loadu_si512(right)));
      return (Ints)total;
    }
#endif
    for (int64_t l = 0; l < kRegister; ++l)
      for (int byte = 0; byte < 4; ++byte)
        sums[l] += static_cast<int32_t>(left >> 8 * byte & 0xff) * static_cast<int8_t>(right[l] >> 8 * byte & 0xff);
    return sums;
  }
};

}  // namespace pcp
