// Attention of one head, in tiles: a block of keys meets a panel of queries. Scores lie transposed, a row for each key and a lane for
// each query, so softmax needs no sums across lanes, and weights are at once the right operand of the next product.
//
// Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3; Dao, "FlashAttention-2", 2023.
#pragma once

#include <cmath>
#include <limits>

#include "../elementwise.h"
#include "../panels/panels.h"

namespace pcp {

// Keys of a block: whole left panels, and its scores fit the first cache.
template <typename Panels>
constexpr int64_t kKeysOf = 128 / Panels::kHigh * Panels::kHigh;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
typedef int32_t Places __attribute__((vector_size(sizeof(Register))));
typedef Register Queries[2];  // a number of each query of a panel

// Rows of numbers that lie side by side, `apart` from one row to the next.
template <typename T>
struct Lines {
  T* at;
  int64_t apart;
  T* operator[](int64_t row) const { return at + row * apart; }
};

inline Register numbers_of(const float* at) {
  Register found;
  std::memcpy(&found, at, sizeof found);
  return found;
}

// Which keys a query sees, and what becomes of its scores. Element (query, key) of mask and bias lies at `down` and `right` times
// those; null if there is none.
struct Sight {
  float scale, fill;        // of scores; the score of a key that is not seen
  bool causal, skips;       // skips: keys that come too late count for nothing, whatever they are
  int64_t offset, window;   // how many keys after its own number a query sees; of those the last ones, so many, or all if it is 0
  const bool* mask;
  int64_t mask_down, mask_right;
  const float* bias;
  int64_t bias_down, bias_right;

  // Of the first keys, so many are looked at by queries before `last`.
  int64_t seen(int64_t last, int64_t keys) const { return skips ? std::min(keys, last + offset) : keys; }
  // The first key that a query sees; it may be negative.
  int64_t oldest(int64_t query) const { return query + offset - window + 1; }
  // Of the first keys, so many are not looked at by queries from `first` on.
  int64_t unseen(int64_t first) const { return skips && window ? std::max<int64_t>(0, oldest(first)) : 0; }
  // Whether no query of [first, last) looks at a key of [key, end).
  bool misses(int64_t first, int64_t last, int64_t key, int64_t end) const {
    return skips && (last + offset <= key || unseen(first) >= end);
  }

  // Of the queries from one on.
  Sight from(int64_t query) const {
    Sight found = *this;
    found.offset += query;
    if (mask) found.mask += query * mask_down;
    if (bias) found.bias += query * bias_down;
    return found;
  }

  // True where query `first` and those after it in a register see a key.
  Places visible(int64_t first, int64_t count, int64_t key) const {
    Places lanes, found;
    for (int i = 0; i < kRegister; ++i) lanes[i] = i, found[i] = -1;
    const auto lane = [](int64_t place) { return Places{} + static_cast<int32_t>(std::clamp<int64_t>(place, -1, kRegister)); };
    if (causal) found &= lanes >= lane(key - offset - first);
    if (window) found &= lanes <= lane(key - oldest(first));
    for (int i = 0; mask && i < kRegister && i < count; ++i)
      if (!mask[(first + i) * mask_down + key * mask_right]) found[i] = 0;
    return found;
  }
  // Whether all these queries see all keys from one to another.
  bool is_clear(int64_t first_query, int64_t queries, int64_t first_key, int64_t last_key) const {
    return !mask && !(causal && last_key > first_query + offset) && !(window && first_key < oldest(first_query + queries - 1));
  }
  Register biases(int64_t first, int64_t count, int64_t key) const {
    Register found = {};
    for (int i = 0; i < kRegister && i < count; ++i) found[i] = bias[(first + i) * bias_down + key * bias_right];
    return found;
  }
};

// `high` rows of a left operand times a right panel: rows of kWide sums, `width` apart.
template <typename Panels>
[[gnu::noinline]] void multiply_panels(int64_t deep, const typename Panels::Word* left, const typename Panels::Word* right, float* to,
                                       int64_t width, int64_t high, bool adds) {
  if (high == Panels::kHigh) return Panels::multiply_into(Panels::words(deep), left, right, to, width, adds);
  Register sums[Panels::kHigh][2];
  Panels::multiply_apart(Panels::words(deep), left, right, sums, high);
  write(sums, to, width, high, kWide, adds);
}

// The same of as many rows as there are, in left panels that follow each other.
template <typename Panels>
void multiply_rows(int64_t rows, int64_t deep, int64_t apart, const typename Panels::Word* left,
                   const typename Panels::Word* right, float* to, int64_t width, bool adds) {
  for (int64_t row = 0; row < rows; row += Panels::kHigh, left += apart)
    multiply_panels<Panels>(deep, left, right, to + row * width, width, std::min<int64_t>(Panels::kHigh, rows - row), adds);
}

// Left panels whose lanes are rows of an operand, and whose inner dimension is its width.
template <typename Panels>
void copy_rows(Lines<const float> from, int64_t rows, int64_t width, typename Panels::Word* to) {
  for (int64_t row = 0; row < rows; row += Panels::kHigh, to += Panels::left_size(width))
    Panels::copy_left(from[row], from.apart, 1, std::min<int64_t>(Panels::kHigh, rows - row), width, to);
}

// Left panels whose lanes are columns of an operand, and whose inner dimension is its rows; `block` of them at most.
template <typename Panels>
void copy_turned(Lines<const float> from, int64_t rows, int64_t width, int64_t block, typename Panels::Word* to) {
  for (int64_t column = 0; column < width; column += Panels::kHigh, to += Panels::left_size(block))
    Panels::copy_left(from.at + column, 1, from.apart, std::min<int64_t>(Panels::kHigh, width - column), rows, to);
}

// Rows of kWide lanes as the right operand of a product that sums over rows: themselves, or rounded copies.
template <typename Panels>
const typename Panels::Word* as_right(const float* from, int64_t rows, typename Panels::Word* to) {
  if constexpr (Panels::kNumbers == 1) return from;
  Panels::copy_right(from, 1, kWide, kWide, rows, to);
  return to;
}

// Rows of kWide lanes, one of each number of a query's result, go to the queries' places.
[[gnu::noinline]] inline void return_queries(const float* from, int64_t width, int64_t count, Lines<float> to, bool adds) {
  constexpr int64_t kAtOnce = 16;
  float block[kAtOnce * kWide + 16];
  for (int64_t column = 0; column < width; column += kAtOnce) {
    const int64_t wide = std::min(kAtOnce, width - column);
    copy_panel<Singles, kAtOnce>(from + column * kWide, kWide, 1, wide, kWide, block);
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < wide; ++j) {
        float* place = to[i] + column + j;
        *place = adds ? *place + block[i * kAtOnce + j] : block[i * kAtOnce + j];
      }
  }
}

// Scores of keys as a sight has them: something is added, and what is not seen has a score of its own, less what all of a query's have
// lost.
[[gnu::noinline]] inline void see(const Sight& sight, float* scores, int64_t keys, int64_t first_key, int64_t first, int64_t count,
                                  const float* lost) {
  if (!sight.bias && sight.is_clear(first, kWide, first_key, first_key + keys - 1)) return;
  for (int64_t k = 0; k < keys; ++k)
    for (int half = 0; half < 2; ++half) {
      float* place = scores + k * kWide + half * kRegister;
      const int64_t query = first + half * kRegister, there = count - half * kRegister, key = first_key + k;
      Register x = numbers_of(place);
      if (sight.bias) x += sight.biases(query, there, key);
      if (!sight.is_clear(query, kRegister, key, key)) x = sight.visible(query, there, key) ? x : sight.fill - numbers_of(lost + half * kRegister);
      std::memcpy(place, &x, sizeof x);
    }
}

// Queries as the right operand of a product that gives their scores.
template <typename Panels>
void copy_queries(Lines<const float> from, int64_t count, int64_t width, float scale, float* scaled, typename Panels::Word* to) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < width; ++j) scaled[i * width + j] = from[i][j] * scale;
  Panels::copy_right(scaled, width, 1, count, width, to);
}

// Weights of one register of queries, and what they add up to: e to the power of scores beside a number of each query, as the right
// operand of the next product. The largest of the scores is put into `largest`.
template <typename Panels>
[[gnu::noinline]] Register weigh(const float* scores, int64_t keys, Register beside, typename Panels::Word* weights, Register& largest) {
  constexpr int64_t kNumbers = Panels::kNumbers;
  Register sums = {}, most = Register{} - kInfinity;
  for (int64_t k = 0; k < keys; k += kNumbers, scores += kNumbers * kWide, weights += kWide) {
    Register found[kNumbers] = {};
    for (int64_t i = 0; i < kNumbers && k + i < keys; ++i) {
      const Register x = numbers_of(scores + i * kWide);
      most = x > most ? x : most;
      sums += found[i] = weight_of(x - beside);
    }
    Panels::put_words(found, weights);
  }
  for (int64_t word = divided_up(keys, kNumbers); word < Panels::words(keys); ++word, weights += kWide)
    std::memset(weights, 0, sizeof(Register));
  largest = most;
  return sums;
}

// The number beside which each query's weights are taken, and their sum so far.
struct Softmax {
  // A score may exceed that number by so much before it is replaced, so that few blocks are done again: most have a score that is a
  // little larger than all before. Queries are lanes, and none changes what another gets.
  // Source: Zadouri et al., "FlashAttention-4", 2026.
  static constexpr float kSlack = 8;
  Queries beside = {Register{} - kInfinity, Register{} - kInfinity}, sums = {};

  static Register finite(Register x) { return x == -kInfinity ? Register{} : x; }

  // Scores of a block become weights. True if what was summed by earlier ones is to be taken `shrink` times.
  template <typename Panels>
  bool take(const float* scores, int64_t keys, bool is_first, typename Panels::Word* weights, Queries shrink) {
    bool has_risen = false;
    for (int half = 0; half < 2; ++half, scores += kRegister, weights += kRegister) {
      Register &now = beside[half], largest;
      for (int64_t k = 0; is_first && k < keys; ++k) {
        const Register x = numbers_of(scores + k * kWide);
        now = x > now ? x : now;
      }
      Register added = weigh<Panels>(scores, keys, finite(now), weights, largest);
      const Places rises = largest > now + kSlack;
      bool any = false;
      for (int i = 0; i < kRegister; ++i) any |= rises[i] != 0;
      shrink[half] = Register{} + 1.0f;
      if (any) {
        const Register before = now;
        now = rises ? largest : now;
        shrink[half] = weight_of(before - finite(now));
        sums[half] *= shrink[half];
        added = weigh<Panels>(scores, keys, finite(now), weights, largest);
      }
      sums[half] += added;
      has_risen |= any;
    }
    return has_risen;
  }
};

}  // namespace pcp
