// How weights are stored in bfloat16, int8 or int4: what a row of them takes in memory, and how it becomes float32, or a panel.
#pragma once

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

// A form: the words and scales of a row of weights, what divides its length, whether its scale is that of a whole row, which sums are
// multiplied by then, and its weights as float32.
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

// A block is sixteen bytes: their lower halves are its first sixteen weights, their upper halves the others, all 8 too large.
struct Int4 {
  using Word = uint8_t;
  static constexpr int64_t kTimes = kBlock;
  static constexpr bool kScaled = false;
  static int64_t words(int64_t inner) { return inner / 2; }
  static int64_t scales(int64_t inner) { return inner / kBlock; }
  static inline Lanes first(Wide both) { return __builtin_convertvector((both & 15) - 8, Lanes); }
  static inline Lanes second(Wide both) { return __builtin_convertvector((both >> 4) - 8, Lanes); }
  static void widen(const Word* row, const float* scales, int64_t begin, int64_t count, float* to) {
    for (int64_t i = 0; i < count; i += kBlock) {
      const Wide both = wide(row + (begin + i) / 2);
      const float scale = scales[(begin + i) / kBlock];
      store(to + i, first(both) * scale);
      store(to + i + kLanes, second(both) * scale);
    }
  }
};

// The transpose of stored weights, as the right operand of a product; it copies itself into panels as `Matrix` does.
template <typename Form>
struct Stored {
  const typename Form::Word* values;
  const float* scales;
  int64_t inner;

  template <typename Panels>
  void copy(int64_t begin, int64_t deep, int64_t column, int64_t lanes, typename Panels::Word* to) const {
    if constexpr (std::is_same_v<Panels, Bytes<true>> || std::is_same_v<Panels, Bytes<false>>) {
      copy_bytes<Panels>(begin, deep, column, lanes, to);
    } else if constexpr (std::is_same_v<Form, BFloat16> && Panels::kNumbers == 2) {
      copy_words<kWide>(reinterpret_cast<const uint8_t*>(row(column) + begin), 2 * inner, lanes, 2 * deep, to);
    } else {
      constexpr int64_t kChunk = 64;
      static_assert(Panels::kDeep % kChunk == 0 && kChunk % kBlock == 0);
      float some[kWide][kChunk];
      for (int64_t k = 0; k < deep; k += kChunk, to += kChunk / Panels::kNumbers * kWide) {
        const int64_t here = std::min(kChunk, deep - k);
        for (int64_t l = 0; l < lanes; ++l) Form::widen(row(column + l), scales_of(column + l), begin + k, here, some[l]);
        Panels::copy_right(&some[0][0], kChunk, 1, lanes, here, to);
      }
    }
  }

 private:
  const typename Form::Word* row(int64_t column) const { return values + column * Form::words(inner); }
  const float* scales_of(int64_t column) const { return scales + column * Form::scales(inner); }

  template <typename Panels>
  void copy_bytes(int64_t begin, int64_t deep, int64_t column, int64_t lanes, uint32_t* to) const {
    uint32_t* words = to + Panels::kRight - Panels::kWords * kWide;
    if constexpr (std::is_same_v<Form, Int8>) {
      copy_words<kWide>(reinterpret_cast<const uint8_t*>(row(column) + begin), inner, lanes, deep, words);
      Panels::complete_right(scales + column, lanes, deep, to);
    } else {
      int8_t rounded[kWide][Panels::kDeep];
      float of_row[Panels::kDeep], found[kWide];
      for (int64_t l = 0; l < lanes; ++l) {
        Form::widen(row(column + l), scales_of(column + l), begin, deep, of_row);
        found[l] = to_bytes(of_row, deep, rounded[l]);
      }
      copy_words<kWide>(reinterpret_cast<const uint8_t*>(rounded), Panels::kDeep, lanes, deep, words);
      Panels::complete_right(found, lanes, deep, to);
    }
  }
};

}  // namespace pcp
