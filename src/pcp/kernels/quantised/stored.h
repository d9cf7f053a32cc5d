// How weights are stored in bfloat16, int8 or int4: what a row of them takes in memory, and how it becomes float32, or a panel.
#pragma once

#include <type_traits>

#include "../native/panels/bytes.h"
#include "../native/panels/multiply.h"
#include "../native/rows.h"

namespace pcp {

constexpr int64_t kBlock = 32;  // weights of int4 that share a scale

typedef int32_t Wide __attribute__((vector_size(kLanes * sizeof(int32_t))));

// Sixteen words in memory, each as an int32. GCC makes one instruction of the loop for bytes, and sixteen of
// __builtin_convertvector; for words of two bytes it is the latter that becomes one.
inline Wide wide(const uint16_t* at) {
  typedef uint16_t Words __attribute__((vector_size(kLanes * sizeof(uint16_t))));
  Words found;
  std::memcpy(&found, at, sizeof found);
  return __builtin_convertvector(found, Wide);
}

template <typename Byte>
inline Wide wide(const Byte* at) {
  int32_t numbers[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) numbers[i] = at[i];
  Wide found;
  std::memcpy(&found, numbers, sizeof found);
  return found;
}

// Words of a row from `begin` on as float32, `count` of them.
template <typename Form>
inline void widen_words(const typename Form::Word* row, int64_t begin, int64_t count, float* to) {
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) store(to + i, Form::lanes(wide(row + begin + i)));
  if (const int64_t rest = count - whole) {
    typename Form::Word words[kLanes] = {};
    std::memcpy(words, row + begin + whole, rest * sizeof(typename Form::Word));
    put(to + whole, Form::lanes(wide(words)), rest);
  }
}

// Sixteen numbers of a row from `i` on, times their scale if they have one of their own.
template <typename Form>
inline Lanes scaled(Lanes numbers, const float* scales, int64_t i) {
  if constexpr (Form::kTimes == 1) return numbers;
  return numbers * scales[i / Form::kTimes];
}

// A form: the words and scales of a row of weights, what divides its length, whether its scale is that of a whole row, which sums are
// multiplied by then, and its weights as float32. One whose rows have several scales has one for each kTimes.
struct BFloat16 {
  using Word = uint16_t;
  static constexpr int64_t kTimes = 1;
  static constexpr bool kScaled = false;
  static int64_t words(int64_t inner) { return inner; }
  static int64_t scales(int64_t) { return 0; }
  static inline Lanes lanes(Wide bits) {
    bits <<= 16;
    Lanes found;
    std::memcpy(&found, &bits, sizeof found);
    return found;
  }
  static void widen(const Word* row, const float*, int64_t begin, int64_t count, float* to) {
    widen_words<BFloat16>(row, begin, count, to);
  }
};

struct Int8 {
  using Word = int8_t;
  static constexpr int64_t kTimes = 1;
  static constexpr bool kScaled = true;
  static int64_t words(int64_t inner) { return inner; }
  static int64_t scales(int64_t) { return 1; }
  static inline Lanes lanes(Wide numbers) { return __builtin_convertvector(numbers, Lanes); }
  static void widen(const Word* row, const float*, int64_t begin, int64_t count, float* to) {
    widen_words<Int8>(row, begin, count, to);
  }
};

// Bytes with a scale for each `kEach` of a row.
template <int64_t kEach>
struct Int8By {
  static_assert(kEach % kLanes == 0);
  using Word = int8_t;
  static constexpr int64_t kTimes = kEach;
  static constexpr bool kScaled = false;
  static int64_t words(int64_t inner) { return inner; }
  static int64_t scales(int64_t inner) { return inner / kEach; }
  static inline Lanes lanes(Wide numbers) { return __builtin_convertvector(numbers, Lanes); }
  static void widen(const Word* row, const float* scales, int64_t begin, int64_t count, float* to) {
    for (int64_t i = 0; i < count; i += kLanes) store(to + i, scaled<Int8By>(lanes(wide(row + begin + i)), scales, begin + i));
  }
};

// A block is sixteen bytes: their lower halves are its first sixteen weights, their upper halves the others, all 8 too large.
struct Int4 {
  using Word = uint8_t;
  static constexpr int64_t kTimes = kBlock;
  static constexpr bool kScaled = false;
  static int64_t words(int64_t inner) { return inner / 2; }
  static int64_t scales(int64_t inner) { return inner / kBlock; }
  static inline Lanes first(Wide both) { return number(both); }
  static inline Lanes second(Wide both) { return number(both >> 4); }
  // Of the lowest four bits: the sixteen numbers that there are stand in a register, where there is one so large.
  static inline Lanes number(Wide bits) {
#if defined(__AVX512F__)
    const Lanes numbers = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    return __builtin_shuffle(numbers, bits);
#else
    return __builtin_convertvector((bits & 15) - 8, Lanes);
#endif
  }
  static void widen(const Word* row, const float* scales, int64_t begin, int64_t count, float* to) {
    for (int64_t i = 0; i < count; i += kBlock) {
      const Wide both = wide(row + (begin + i) / 2);
      const float scale = scales[(begin + i) / kBlock];
      store(to + i, first(both) * scale);
      store(to + i + kLanes, second(both) * scale);
    }
  }
};

// Copies a panel of stored weights: of rows from `row` on, of which `lanes` are there, the numbers from `begin` on.
template <typename Panels, typename Form>
void copy_stored(const void* values, const float* scales, int64_t inner, int64_t row, int64_t lanes, int64_t begin, int64_t deep,
                 typename Panels::Word* to) {
  const auto of_row = [&](int64_t l) { return static_cast<const typename Form::Word*>(values) + (row + l) * Form::words(inner); };
  const auto of_scales = [&](int64_t l) { return scales + (row + l) * Form::scales(inner); };
  const auto words_at = [&](int64_t size) { return reinterpret_cast<const uint8_t*>(of_row(0)) + begin * size; };
  if constexpr (Panels::kNumbers == 2 && std::is_same_v<Form, BFloat16>) {
    copy_words<kWide>(words_at(2), 2 * inner, lanes, 2 * deep, to);
    const int64_t filled = divided_up(deep, 2);
    std::memset(to + filled * kWide, 0, (Panels::words(deep) - filled) * kWide * sizeof *to);
  } else if constexpr (Panels::kNumbers == 4 && std::is_same_v<Form, Int8>) {
    copy_words<kWide>(words_at(1), inner, lanes, deep, Panels::words_of_right(to));
    Panels::complete_right(scales + row, lanes, deep, to);
  } else if constexpr (Panels::kNumbers == 4) {
    int8_t rounded[kWide][Panels::kDeep];
    float numbers[Panels::kDeep], found[kWide];
    for (int64_t l = 0; l < lanes; ++l) {
      Form::widen(of_row(l), of_scales(l), begin, deep, numbers);
      found[l] = to_bytes(numbers, deep, rounded[l]);
    }
    copy_words<kWide>(reinterpret_cast<const uint8_t*>(rounded), Panels::kDeep, lanes, deep, Panels::words_of_right(to));
    Panels::complete_right(found, lanes, deep, to);
  } else {
    constexpr int64_t kChunk = 64;
    static_assert(Panels::kDeep % kChunk == 0 && kChunk % kBlock == 0);
    float numbers[kWide][kChunk];
    for (int64_t k = 0; k < deep; k += kChunk, to += kChunk / Panels::kNumbers * kWide) {
      const int64_t here = std::min(kChunk, deep - k);
      for (int64_t l = 0; l < lanes; ++l) Form::widen(of_row(l), of_scales(l), begin + k, here, numbers[l]);
      Panels::copy_right(&numbers[0][0], kChunk, 1, lanes, here, to);
    }
  }
}

// The transpose of stored weights as the right operand of a product: it copies itself into panels, as `Matrix` does. The form is known
// where it is copied only, so a product is compiled once for all of them.
template <typename Word>
struct Stored {
  void (*by)(const void*, const float*, int64_t, int64_t, int64_t, int64_t, int64_t, Word*);
  const void* values;
  const float* scales;
  int64_t inner;

  template <typename Panels>
  void copy(int64_t begin, int64_t deep, int64_t column, int64_t lanes, Word* to) const {
    by(values, scales, inner, column, lanes, begin, deep, to);
  }
};

}  // namespace pcp
