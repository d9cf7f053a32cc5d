// Panels: what the innermost loop of a product reads. A panel of the left operand has kHigh rows, one of the right kWide columns;
// what belongs to one place of the inner dimension lies together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "registers.h"

namespace pcp {

// A word of a panel is a float32 number.
struct Singles {
  using Word = float;
  static constexpr int64_t kWhole = 1;    // words of a right panel that is kept are a multiple of this
  static constexpr int64_t kNumbers = 1;  // of the inner dimension in a word
  // Of the inner dimension at once. A right panel of it is read from the second cache, which keeps up; half as much would stay in the
  // first, but sums would be stored, and read again, twice as often: that took 2 % longer.
  static constexpr int64_t kDeep = 512;

  // Both panels are asked for ahead, from the second cache. Without that, products took up to 3 % longer.
  template <int kRows = kHigh>
  [[gnu::always_inline]] static void multiply(int64_t words, const Word* left, const Word* right, Sums sums) {
    for (int64_t k = 0; k < words; ++k, left += kHigh, right += kWide) {
      __builtin_prefetch(right + 16 * kWide);
      __builtin_prefetch(right + 16 * kWide + kRegister);
      __builtin_prefetch(left + 24 * kHigh);
      Register a, b;
      std::memcpy(&a, right, sizeof a);
      std::memcpy(&b, right + kRegister, sizeof b);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        sums[i][0] += left[i] * a;
        sums[i][1] += left[i] * b;
      }
    }
  }

  static Word word(const float* at, int64_t, bool) { return *at; }
  // One word of each lane, from one number of each.
  template <typename V>
  static void put_words(const V (&numbers)[1], Word* to) {
    std::memcpy(to, numbers, sizeof numbers);
  }
  // What is left of numbers that are not copied into panels.
  template <typename V>
  static V kept(V x) {
    return x;
  }
#if defined(__AVX512F__)
  // Sixteen words of one lane, whose numbers lie side by side; `count` numbers are there.
  static __m512i of_lane(const float* at, int64_t count) {
    return _mm512_castps_si512(_mm512_maskz_loadu_ps(first_lanes(count), at));
  }
  // One word of each of sixteen lanes that lie side by side.
  static __m512i of_lanes(const float* at, int64_t, bool, __mmask16 there) {
    return _mm512_castps_si512(_mm512_maskz_loadu_ps(there, at));
  }
#endif
};

// A word of a panel is two numbers that follow each other in the inner dimension, rounded to bfloat16, the first in the lower
// half. They are multiplied exactly and added up in float32.
struct Pairs {
  using Word = uint32_t;
  static constexpr int64_t kNumbers = 2, kDeep = 1024, kWhole = 16;  // which tiles read

#if defined(__AVX512BF16__)
  template <int kRows = kHigh>
  [[gnu::always_inline]] static void multiply(int64_t words, const Word* left, const Word* right, Sums sums) {
    for (int64_t k = 0; k < words; ++k, left += kHigh, right += kWide) {
      const __m512bh a = (__m512bh)_mm512_loadu_si512(right), b = (__m512bh)_mm512_loadu_si512(right + kRegister);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const __m512bh x = (__m512bh)_mm512_set1_epi32(static_cast<int>(left[i]));
        sums[i][0] = (Register)_mm512_dpbf16_ps((__m512)sums[i][0], x, a);
        sums[i][1] = (Register)_mm512_dpbf16_ps((__m512)sums[i][1], x, b);
      }
    }
  }
#else
  typedef Word Words __attribute__((vector_size(sizeof(Register))));

  template <int kRows = kHigh>
  [[gnu::always_inline]] static void multiply(int64_t words, const Word* left, const Word* right, Sums sums) {
    for (int64_t k = 0; k < words; ++k, left += kHigh, right += kWide)
      for (int half = 0; half < 2; ++half) {
        Words pairs;
        std::memcpy(&pairs, right + half * kRegister, sizeof pairs);
        const Register first = (Register)(pairs << 16), second = (Register)(pairs & 0xffff0000u);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i)
          sums[i][half] += number(left[i] << 16) * first + number(left[i] & 0xffff0000u) * second;
      }
  }
#endif

  static float number(Word bits) {
    float found;
    std::memcpy(&found, &bits, sizeof found);
    return found;
  }
  static Word word(const float* at, int64_t apart, bool both) {
    return rounded(at[0]) | (both ? rounded(at[apart]) << 16 : 0);
  }
  static Word word(const Bf16* at, int64_t apart, bool both) {
    return at[0].bits | (both ? static_cast<Word>(at[apart].bits) << 16 : 0);
  }
  // The upper half of a number that is rounded to nearest, ties to even; NaN stays NaN.
  static Word rounded(float x) {
    Word bits;
    std::memcpy(&bits, &x, sizeof bits);
    return x != x ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
  template <typename V>
  static V kept(V x) {
    typedef uint32_t Bits __attribute__((vector_size(sizeof(V))));
    Bits bits;
    std::memcpy(&bits, &x, sizeof x);
    const Bits near = bits + 0x7fff + (bits >> 16 & 1);
    const Bits nan = (bits & 0x7fffffffu) > Bits{} + 0x7f800000u ? bits | 0x400000u : near;
    bits = nan & 0xffff0000u;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
  // One word of each lane, from two numbers of each.
  template <typename V>
  static void put_words(const V (&numbers)[2], Word* to) {
#if defined(__AVX512BF16__)
    if constexpr (sizeof(V) == 64) {
      alignas(64) static constexpr uint16_t kInTurn[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                           8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
      const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)numbers[1], (__m512)numbers[0]);
      return _mm512_storeu_si512(to, _mm512_permutexvar_epi16(_mm512_load_si512(kInTurn), both));
    }
#endif
    typedef Word Words __attribute__((vector_size(sizeof(V))));
    const V first = kept(numbers[0]), second = kept(numbers[1]);
    const Words words = (Words)first >> 16 | (Words)second;
    std::memcpy(to, &words, sizeof words);
  }
#if defined(__AVX512F__)
  static __m512i of_lane(const Bf16* at, int64_t count) {
    return _mm512_maskz_loadu_epi16(count >= 32 ? ~__mmask32{} : (__mmask32{1} << count) - 1, at);
  }
  static __m512i of_lanes(const Bf16* at, int64_t apart, bool both, __mmask16 there) {
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, at));
    if (!both) return low;
    return _mm512_or_epi32(low, _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, at + apart)), 16));
  }
#endif
#if defined(__AVX512BF16__)
  static __m512i of_lane(const float* at, int64_t count) {
    const __m512 first = _mm512_maskz_loadu_ps(first_lanes(count), at);
    const __m512 second = _mm512_maskz_loadu_ps(first_lanes(count - 16), at + 16);
    return (__m512i)_mm512_cvtne2ps_pbh(second, first);
  }
  static __m512i of_lanes(const float* at, int64_t apart, bool both, __mmask16 there) {
    const auto narrow = [](__m512 x) { return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x)); };
    const __m512i low = narrow(_mm512_maskz_loadu_ps(there, at));
    if (!both) return low;
    return _mm512_or_epi32(low, _mm512_slli_epi32(narrow(_mm512_maskz_loadu_ps(there, at + apart)), 16));
  }
#elif defined(__AVX512F__)
  static __m512i rounded(__m512 x) {
    const __m512i bits = _mm512_castps_si512(x), odd = _mm512_and_epi32(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i near = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
    const __mmask16 wrong = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_srli_epi32(_mm512_mask_or_epi32(near, wrong, bits, _mm512_set1_epi32(0x400000)), 16);
  }
  static __m512i of_lane(const float* at, int64_t count) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i first = rounded(_mm512_maskz_loadu_ps(first_lanes(count), at));
    const __m512i second = rounded(_mm512_maskz_loadu_ps(first_lanes(count - 16), at + 16));
    const __m512i low = _mm512_permutex2var_epi32(first, even, second);
    const __m512i high = _mm512_permutex2var_epi32(first, _mm512_add_epi32(even, _mm512_set1_epi32(1)), second);
    return _mm512_or_epi32(low, _mm512_slli_epi32(high, 16));
  }
  static __m512i of_lanes(const float* at, int64_t apart, bool both, __mmask16 there) {
    const __m512i low = rounded(_mm512_maskz_loadu_ps(there, at));
    if (!both) return low;
    return _mm512_or_epi32(low, _mm512_slli_epi32(rounded(_mm512_maskz_loadu_ps(there, at + apart)), 16));
  }
#endif
};

// Stores lanes rounded to bfloat16, as many as there are if `count` is more.
template <typename V>
void put(Bf16* at, V lanes, int64_t count) {
  constexpr int64_t kCount = sizeof(V) / sizeof(float);
#if defined(__AVX512BF16__)
  if constexpr (kCount == 16) {
    const __m256i found = (__m256i)_mm512_cvtneps_pbh((__m512)lanes);
    return _mm256_mask_storeu_epi16(at, first_lanes(count), found);
  }
#endif
  const V kept = Pairs::kept(lanes);
  Bf16 halves[kCount];
  uint32_t bits[kCount];
  std::memcpy(bits, &kept, sizeof bits);
  for (int64_t i = 0; i < kCount; ++i) halves[i].bits = static_cast<uint16_t>(bits[i] >> 16);
  if (count >= kCount)
    std::memcpy(at, halves, sizeof halves);
  else
    std::memcpy(at, halves, count * sizeof(Bf16));
}

// Words from one panel of `deep` numbers to the next. Registers are stored whole, so up to sixteen words behind a panel are written.
template <typename Form, int kCount>
constexpr int64_t panel_size(int64_t deep) {
  return kCount * divided_up(deep, Form::kNumbers) + 16;
}

// Copies a panel of `deep` numbers. Number k of lane l lies at `at[l * lane + k * step]`; `lanes` of them are
// there, the others are 0. A panel is thousands of numbers: put into every caller, it would take compilers most of their time.
template <typename Form, int kCount, typename Number>
[[gnu::noinline]] void copy_panel(const Number* at, int64_t lane, int64_t step, int64_t lanes, int64_t deep, typename Form::Word* to) {
  constexpr int64_t kNumbers = Form::kNumbers;
  const int64_t words = divided_up(deep, kNumbers);
#if defined(__AVX512F__)
  if (lane == 1) {
    for (int64_t w = 0; w < words; ++w, at += kNumbers * step)
      for (int64_t l = 0; l < kCount; l += 16)
        _mm512_storeu_si512(to + w * kCount + l,
                            Form::of_lanes(at + l, step, (w + 1) * kNumbers <= deep, first_lanes(lanes - l)));
    return;
  }
  if (step == 1) {
    for (int64_t w = 0; w < words; w += 16)
      for (int64_t l = 0; l < kCount; l += 16) {
        __m512i block[16];
        for (int64_t i = l; i < std::min(lanes, l + 16); ++i)  // lanes lie in pages of their own: no hardware looks that far ahead
          for (int64_t line = 0; line < kNumbers; ++line)
            __builtin_prefetch(at + i * lane + (w + 2 * 16) * kNumbers + line * 16);
        for (int64_t i = 0; i < 16; ++i)
          block[i] = l + i < std::min<int64_t>(lanes, kCount)
                         ? Form::of_lane(at + (l + i) * lane + w * kNumbers, deep - w * kNumbers)
                         : _mm512_setzero_si512();
        transpose(block);
        for (int64_t i = 0; i < std::min<int64_t>(16, words - w); ++i)
          _mm512_storeu_si512(to + (w + i) * kCount + l, block[i]);
      }
    return;
  }
#endif
  for (int64_t w = 0; w < words; ++w)
    for (int64_t l = 0; l < kCount; ++l)
      to[w * kCount + l] =
          l < lanes ? Form::word(at + l * lane + w * kNumbers * step, step, (w + 1) * kNumbers <= deep) : 0;
}

// What two panels give is put into a matrix whose rows are `width` apart, or added to what lies there. As all loops here have constant
// bounds, sums stay in registers until they are stored.
template <typename Form>
void multiply_whole(int64_t words, const typename Form::Word* left, const typename Form::Word* right, float* to, int64_t width,
                    bool adds) {
  Sums sums = {};
#pragma GCC unroll 16
  for (int i = 0; i < kHigh; ++i)
    for (int half = 0; half < 2; ++half) __builtin_prefetch(to + i * width + half * kRegister, 1);
  Form::multiply(words, left, right, sums);
#pragma GCC unroll 16
  for (int i = 0; i < kHigh; ++i)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      float* place = to + i * width + half * kRegister;
      Register before = {};
      if (adds) std::memcpy(&before, place, sizeof before);
      before += sums[i][half];
      std::memcpy(place, &before, sizeof before);
    }
}

// What all panels have in common that vector registers multiply: those of a form, of whose numbers a word holds so many.
template <typename Form>
struct InRegisters : Form {
  static constexpr int kHigh = pcp::kHigh;
  static constexpr int64_t kNear = Form::kDeep / Form::kNumbers, kTogether = 1;  // a left panel meets the right ones of a block with all its words
  static void ask_for(const float*, int64_t) {}
  struct Scope {
    Scope() {}
  };

  static int64_t words(int64_t deep) { return divided_up(deep, Form::kNumbers); }
};

// A word of a panel is four integers of one byte.
template <int64_t kNumbersAtOnce>
struct Quadruples {
  using Word = uint32_t;
  static constexpr int64_t kNumbers = 4, kDeep = kNumbersAtOnce;
};

// Panels that vector registers multiply, by the innermost loop of a form. `Tiles` has the same names.
template <typename Form>
struct Vectors : InRegisters<Form> {
  using Word = typename Form::Word;
  using InRegisters<Form>::kHigh;
  using InRegisters<Form>::words;
  static constexpr int64_t kLeft = panel_size<Form, kHigh>(Form::kDeep), kRight = panel_size<Form, kWide>(Form::kDeep);

  // Words from one panel of `deep` numbers to the next.
  static int64_t left_size(int64_t deep) { return panel_size<Form, kHigh>(deep); }
  static int64_t right_size(int64_t deep) { return panel_size<Form, kWide>(deep); }
  static int64_t kept_size(int64_t deep) { return divided_up(words(deep), Form::kWhole) * Form::kWhole * kWide; }
  template <typename Number>
  static void copy_left(const Number* at, int64_t lane, int64_t step, int64_t lanes, int64_t deep, Word* to) {
    copy_panel<Form, kHigh>(at, lane, step, lanes, deep, to);
  }
  template <typename Number>
  static void copy_right(const Number* at, int64_t lane, int64_t step, int64_t lanes, int64_t deep, Word* to) {
    copy_panel<Form, kWide>(at, lane, step, lanes, deep, to);
  }
  [[gnu::always_inline]] static void multiply_into(int64_t words, const Word* left, const Word* right, float* to, int64_t width,
                                                   bool adds) {
    multiply_whole<Form>(words, left, right, to, width, adds);
  }
  // Only the first `high` rows of the left panel are there, often few: of 1,024 rows the last panel has two.
  static void multiply_apart(int64_t words, const Word* left, const Word* right, Register (*to)[2], int64_t high) {
    (high <= 4 ? multiply_rows<4> : high <= 8 ? multiply_rows<std::min(8, kHigh)> : multiply_rows<kHigh>)(words, left, right, to);
  }

 private:
  template <int kRows>
  [[gnu::noinline]] static void multiply_rows(int64_t words, const Word* left, const Word* right, Register (*to)[2]) {
    Sums sums = {};
    Form::template multiply<kRows>(words, left, right, sums);
    std::memcpy(to, sums, kRows * sizeof *sums);
  }
};

// Puts sums from registers into a matrix whose rows are `width` apart, or adds them to what lies there.
inline void write(const Register (*sums)[2], float* to, int64_t width, int64_t high, int64_t wide, bool adds) {
  if (wide >= kWide) {
    for (int64_t i = 0; i < high; ++i)
      for (int half = 0; half < 2; ++half) {
        float* place = to + i * width + half * kRegister;
        Register total = sums[i][half], before;
        if (adds) {
          std::memcpy(&before, place, sizeof before);
          total += before;
        }
        std::memcpy(place, &total, sizeof total);
      }
    return;
  }
  for (int64_t i = 0; i < high; ++i)
    for (int64_t j = 0; j < wide; ++j) {
      const float value = sums[i][j / kRegister][j % kRegister];
      float* place = to + i * width + j;
      *place = adds ? *place + value : value;
    }
}

}  // namespace pcp
