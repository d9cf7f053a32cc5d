// Attention of single queries, as of a model that reads one token: a product of a matrix and a vector, which waits for memory alone. Keys
// and values are read once, where they lie, and no further than to the last one that is seen.
//
// The heads of a model lie side by side in a row of its cache, so several are computed together, a few rows at a time: read head by head,
// rows lie apart, and came from memory at half the rate.
#pragma once

#include <vector>

#include "attention_layout.h"
#include "rows.h"

namespace pcp {

constexpr int64_t kFew = 8;  // queries that are computed one by one: for more, keys are worth copying
static_assert(kFew <= kWide);
constexpr int64_t kRows = 8;  // of keys, or of values, that one query reads before the next one does

// One query, its keys and values, and where its result goes. `weights` has room for the keys and kLanes more.
struct One {
  const float* query;
  Lines<const float> key, value;
  Sight sight;
  float *weights, *result, *normaliser;
  int64_t keys = 0;      // from which on it sees none; 0 as well if it is not computed here
  bool sees_all = true;  // of them, and there are no others
  float top = -kInfinity, total = 0;

  bool is_seen(int64_t key) const { return !sight.mask || sight.mask[key * sight.mask_right]; }
};

// Asks for a row that is read soon.
inline void ask_for_row(Lines<const float> rows, int64_t row, int64_t width) {
  constexpr int64_t kLine = 16;
  for (int64_t column = 0; column < width; column += kLine) __builtin_prefetch(rows[row + kRows] + column);
}

// Scores of the query with keys [first, last).
inline void score_rows(const Sizes& sizes, One& one, int64_t first, int64_t last) {
  const int64_t whole = sizes.width / kLanes * kLanes;
  for (int64_t key = first; key < last; ++key) {
    one.weights[key] = -kInfinity;
    if (!one.is_seen(key)) {
      one.sees_all = false;
      continue;
    }
    ask_for_row(one.key, key, sizes.width);
    const float* at = one.key[key];
    Lanes sums = {};
    for (int64_t column = 0; column < whole; column += kLanes) sums += load(one.query + column) * load(at + column);
    if (whole < sizes.width) sums += load_part(one.query + whole, sizes.width - whole) * load_part(at + whole, sizes.width - whole);
    one.weights[key] = sum(sums) * one.sight.scale + (one.sight.bias ? one.sight.bias[key * one.sight.bias_right] : 0.0f);
    one.top = one.weights[key] > one.top ? one.weights[key] : one.top;
  }
}

// Adds values [first, last) times their weights to the result, which the first of them begin: `count` vectors of columns, of the last of
// which `rest` are there.
template <int64_t count>
void mix_columns(const One& one, int64_t first, int64_t last, int64_t column, int64_t rest) {
  const Lines<const float> value{one.value.at + column, one.value.apart};
  float* to = one.result + column;
  constexpr int64_t kLast = (count - 1) * kLanes;
  Lanes sums[count] = {};
  if (first) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < count - 1; ++i) sums[i] = load(to + i * kLanes);
    sums[count - 1] = part<Lanes>(to + kLast, rest);
  }
  for (int64_t key = first; key < last; ++key) {
    if (!one.is_seen(key)) continue;
    ask_for_row(value, key, kLast + rest);
    const float *at = value[key], weight = one.weights[key];
#pragma GCC unroll 4
    for (int64_t i = 0; i < count - 1; ++i) sums[i] += load(at + i * kLanes) * weight;
    sums[count - 1] += part<Lanes>(at + kLast, rest) * weight;
  }
#pragma GCC unroll 4
  for (int64_t i = 0; i < count - 1; ++i) store(to + i * kLanes, sums[i]);
  put(to + kLast, sums[count - 1], rest);
}

inline void mix_rows(const Sizes& sizes, const One& one, int64_t first, int64_t last) {
  int64_t column = 0;
  for (; sizes.depth - column >= 4 * kLanes; column += 4 * kLanes) mix_columns<4>(one, first, last, column, kLanes);
  for (; column < sizes.depth; column += kLanes) mix_columns<1>(one, first, last, column, std::min(kLanes, sizes.depth - column));
}

// Calls `work(one, first, last)` for all rows that each sees, a few of each in turn.
template <typename Work>
void for_rows(std::vector<One>& ones, const Work& work) {
  int64_t most = 0;
  for (const One& one : ones) most = std::max(most, one.keys);
  for (int64_t first = 0; first < most; first += kRows)
    for (One& one : ones)
      if (first < one.keys) work(one, first, std::min(first + kRows, one.keys));
}

// Computes them, but not those in whose results keys count that they do not see: these are left with 0 keys.
inline void attend_together(const Sizes& sizes, std::vector<One>& ones) {
  for (One& one : ones) {
    one.keys = one.sight.causal ? std::clamp<int64_t>(one.sight.offset + 1, 0, sizes.keys) : sizes.keys;
    while (one.keys > 0 && !one.is_seen(one.keys - 1)) --one.keys;
    one.sees_all = one.keys == sizes.keys;
  }
  for_rows(ones, [&](One& one, int64_t first, int64_t last) { score_rows(sizes, one, first, last); });
  for (One& one : ones) {
    if (one.top == -kInfinity || (!one.sees_all && one.sight.fill - one.top > -87.0f)) {
      one.keys = 0;
      continue;
    }
    std::fill_n(one.weights + one.keys, kLanes, -kInfinity);
    Lanes sums = {};
    for (int64_t key = 0; key < one.keys; key += kLanes) {
      const Lanes weights = weight_of(load(one.weights + key) - one.top);
      sums += weights;
      store(one.weights + key, weights);
    }
    one.total = sum(sums);
    *one.normaliser = one.top + std::log(one.total);
  }
  for_rows(ones, [&](One& one, int64_t first, int64_t last) { mix_rows(sizes, one, first, last); });
  for (const One& one : ones)
    for (int64_t column = 0; one.keys && column < sizes.depth; column += kLanes) {
      const int64_t wide = sizes.depth - column;
      put(one.result + column, part<Lanes>(one.result + column, wide) * (1.0f / one.total), wide);
    }
}

}  // namespace pcp
