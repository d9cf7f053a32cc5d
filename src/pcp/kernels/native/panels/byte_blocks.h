// Panels of integers of one byte whose scales are those of blocks: each row on the left and each column on the right has one for every
// kBlock numbers of the inner dimension. As in `Bytes` a word is four integers, and those of the left operand have 128 added.
//
// Both operands are float32 and are rounded where they are copied, by the largest number of a block, so one large number makes only its
// own block coarse.
#pragma once

#include "bytes.h"

namespace pcp {

template <bool kFast>
struct ByteBlocks : InRegisters<Quadruples<1024>> {
  static constexpr int64_t kBlock = 128, kWords = kBlock / kNumbers;
  static constexpr int64_t kScales = 16;  // a line of them, of which kHigh are used
  static constexpr int64_t kLeftBlock = kScales + kHigh * kWords, kRightBlock = 2 * kWide + kWide * kWords;
  static constexpr int64_t kLeft = kDeep / kBlock * kLeftBlock, kRight = kDeep / kBlock * kRightBlock;
  static_assert(kHigh <= kScales && kBlock % kLanes == 0, "a scale for each row, and blocks of whole registers");
  typedef typename Bytes<kFast>::Ints Ints;

  static int64_t kept_size(int64_t deep) { return divided_up(deep, kBlock) * kRightBlock; }

  static void copy_left(const float* at, int64_t lane, int64_t step, int64_t lanes, int64_t deep, Word* to) {
    for (int64_t begin = 0; begin < deep; begin += kBlock, at += kBlock * step, to += kLeftBlock) {
      float scales[kScales];
      copy_block<kHigh, 0x80808080u>(at, lane, step, lanes, std::min(kBlock, deep - begin), scales, to + kScales);
      std::memcpy(to, scales, sizeof scales);
    }
  }

  // What 128 adds to a sum, taken off, stands behind the scales.
  static void copy_right(const float* at, int64_t lane, int64_t step, int64_t lanes, int64_t deep, Word* to) {
    for (int64_t begin = 0; begin < deep; begin += kBlock, at += kBlock * step, to += kRightBlock) {
      const int64_t count = std::min(kBlock, deep - begin);
      float scales[kWide];
      copy_block<kWide, 0>(at, lane, step, lanes, count, scales, to + 2 * kWide);
      std::memcpy(to, scales, sizeof scales);
      Ints sums[2] = {};
      const Word* from = to + 2 * kWide;
      for (int64_t w = 0; w < words(count); ++w, from += kWide)
        for (int half = 0; half < 2; ++half) sums[half] = Bytes<kFast>::dot(sums[half], 0x80808080u, from + half * kRegister);
      for (Ints& each : sums) each = -each;
      std::memcpy(to + kWide, sums, sizeof sums);
    }
  }

  static void multiply_into(int64_t words, const Word* left, const Word* right, float* to, int64_t width, bool adds) {
    for (; words > 0; words -= kWords, left += kLeftBlock, right += kRightBlock, adds = true) {
      const int64_t here = std::min(kWords, words);
      adds ? multiply_block<true>(here, left, right, to, width) : multiply_block<false>(here, left, right, to, width);
    }
  }

  static void multiply_apart(int64_t words, const Word* left, const Word* right, Register (*to)[2], int64_t) {
    multiply_into(words, left, right, reinterpret_cast<float*>(to), kWide, false);
  }

 private:
  // It stands apart: with what is around it the compiler would not keep sums in registers.
  template <bool kAdds>
  [[gnu::noinline]] static void multiply_block(int64_t words, const Word* left, const Word* right, float* to, int64_t width) {
    Ints sums[kHigh][2];
#pragma GCC unroll 16
    for (int i = 0; i < kHigh; ++i) std::memcpy(sums[i], right + kWide, sizeof sums[i]);
    if (!kAdds)
#pragma GCC unroll 16
      for (int i = 0; i < kHigh; ++i)
        for (int half = 0; half < 2; ++half) __builtin_prefetch(to + i * width + half * kRegister, 1);
    const Word *of_left = left + kScales, *of_right = right + 2 * kWide;
    for (int64_t w = 0; w < words; ++w, of_left += kHigh, of_right += kWide)
#pragma GCC unroll 16
      for (int i = 0; i < kHigh; ++i) {
        sums[i][0] = Bytes<kFast>::dot(sums[i][0], of_left[i], of_right);
        sums[i][1] = Bytes<kFast>::dot(sums[i][1], of_left[i], of_right + kRegister);
      }
    Register scales[2];
    std::memcpy(scales, right, sizeof scales);
#pragma GCC unroll 16
    for (int i = 0; i < kHigh; ++i) {
      float scale;
      std::memcpy(&scale, left + i, sizeof scale);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        float* place = to + i * width + half * kRegister;
        Register total = {};
        if (kAdds) std::memcpy(&total, place, sizeof total);
        total += __builtin_convertvector(sums[i][half], Register) * (scales[half] * scale);
        std::memcpy(place, &total, sizeof total);
      }
    }
  }

  // Copies a block of `deep` numbers of `lanes` lanes as words, `kFlipped` of whose bits are flipped; where nothing is, stand zeros.
  template <int kCount, uint32_t kFlipped>
  [[gnu::noinline]] static void copy_block(const float* at, int64_t lane, int64_t step, int64_t lanes, int64_t deep, float* scales, Word* to) {
#if defined(__AVX512F__) && defined(__AVX512BW__)
    if (lane == 1) {
      for (int64_t l = 0; l < kCount; l += 16)
        copy_lanes<kFlipped>(at + l, step, first_lanes(lanes - l), deep, scales + l, to + l, kCount, first_lanes(kCount - l));
      return;
    }
#endif
    alignas(64) int8_t rows[kCount][kBlock];
    for (int64_t l = 0; l < std::max<int64_t>(kCount, kFlipped ? kScales : 0); ++l) {
      scales[l] = 0.0f;
      if (l >= std::min<int64_t>(lanes, kCount)) continue;
      const float* from = at + l * lane;
      float apart[kBlock];
      if (step == 1) {
        for (int64_t line = 0; line < kBlock; line += 16) __builtin_prefetch(from + kBlock + line);
      } else {
        for (int64_t k = 0; k < deep; ++k) apart[k] = from[k * step];
        from = apart;
      }
      scales[l] = to_bytes(from, deep, rows[l]);
    }
    copy_words<kCount>(reinterpret_cast<const uint8_t*>(rows), kBlock, lanes, deep, to);
    if (kFlipped)
      for (int64_t i = 0; i < words(deep) * kCount; ++i) to[i] ^= kFlipped;
  }

#if defined(__AVX512F__) && defined(__AVX512BW__)
  // The same of sixteen lanes that lie side by side.
  template <uint32_t kFlipped>
  static void copy_lanes(const float* at, int64_t step, __mmask16 there, int64_t deep, float* scales, Word* to, int64_t apart,
                         __mmask16 kept) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i most = _mm512_setzero_si512();
    for (int64_t k = 0; k < deep; ++k)
      most = _mm512_max_epu32(most, _mm512_and_si512(magnitude, _mm512_castps_si512(_mm512_maskz_loadu_ps(there, at + k * step))));
    const __m512 largest = _mm512_castsi512_ps(most), one = _mm512_set1_ps(1.0f), round = _mm512_set1_ps(127.0f);
    const __m512 scale = _mm512_div_ps(largest, round);
    const __mmask16 tiny = _mm512_cmp_ps_mask(scale, _mm512_set1_ps(FLT_MIN), _CMP_LT_OQ);
    const __mmask16 finite = _mm512_cmp_ps_mask(largest, _mm512_set1_ps(FLT_MAX), _CMP_LE_OQ);
    const __m512 shown = _mm512_mask_mov_ps(_mm512_set1_ps(NAN), finite, _mm512_maskz_mov_ps(static_cast<__mmask16>(~tiny), scale));
    _mm512_storeu_ps(scales, shown);
    const __mmask16 usable = static_cast<__mmask16>(finite & ~tiny);
    const __m512 times = _mm512_maskz_div_ps(usable, round, _mm512_mask_mov_ps(one, usable, largest));
    const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __mmask16 whole = static_cast<__mmask16>(there & usable);
    for (int64_t k = 0; k < deep; k += kNumbers, to += apart) {
      __m512i quad[4];
      for (int64_t i = 0; i < 4; ++i)
        quad[i] = _mm512_cvtps_epi32(
            _mm512_mul_ps(times, _mm512_maskz_loadu_ps(k + i < deep ? whole : __mmask16{0}, at + std::min(k + i, deep - 1) * step)));
      const __m512i bytes = _mm512_packs_epi16(_mm512_packs_epi32(quad[0], quad[1]), _mm512_packs_epi32(quad[2], quad[3]));
      const __m512i words = _mm512_xor_si512(_mm512_shuffle_epi8(bytes, order), _mm512_set1_epi32(static_cast<int>(kFlipped)));
      _mm512_mask_storeu_epi32(to, kept, words);
    }
  }
#endif
};

}  // namespace pcp
