// Attention of one query, as of a model that reads one token: a product of a matrix and a vector, which waits for memory alone. Keys
// and values are read once, where they lie, and no further than to the last one that is seen.
#pragma once

#include "attention_layout.h"
#include "rows.h"

namespace pcp {

constexpr int64_t kFew = 8;  // queries that are computed one by one: for more, keys are worth copying
static_assert(kFew <= kWide);

// One query, its keys and values, and where its result goes. `weights` has room for the keys and kLanes more.
struct One {
  const float* query;
  Lines<const float> key, value;
  float *weights, *result, *normaliser;
};

// Asks for a row that is read soon: rows of one head lie apart, where no processor looks for them by itself.
inline void ask_for_row(Lines<const float> rows, int64_t row, int64_t width) {
  constexpr int64_t kAhead = 8, kLine = 16;
  for (int64_t column = 0; column < width; column += kLine) __builtin_prefetch(rows[row + kAhead] + column);
}

// Sums of rows times weights: of all columns from `first` on, as many as four vectors have.
template <typename Seen>
void mix(const One& one, int64_t keys, int64_t first, int64_t depth, float scale, const Seen& is_seen) {
  Lanes sums[4] = {};
  for (int64_t key = 0; key < keys; ++key) {
    if (!is_seen(key)) continue;
    ask_for_row({one.value.at + first, one.value.apart}, key, depth);
    for (int64_t i = 0; i < 4 && i * kLanes < depth; ++i)
      sums[i] += part<Lanes>(one.value[key] + first + i * kLanes, depth - i * kLanes) * one.weights[key];
  }
  for (int64_t i = 0; i < 4 && i * kLanes < depth; ++i)
    put(one.result + first + i * kLanes, sums[i] * scale, depth - i * kLanes);
}

// Computes it; false where keys that are not seen count in the result, and nothing is computed then.
inline bool attend_one(const Sizes& sizes, const Sight& sight, const One& one) {
  const auto is_seen = [&](int64_t key) { return !sight.mask || sight.mask[key * sight.mask_right]; };
  int64_t keys = sight.causal ? std::clamp<int64_t>(sight.offset + 1, 0, sizes.keys) : sizes.keys;
  while (keys > 0 && !is_seen(keys - 1)) --keys;
  float top = -kInfinity;
  bool sees_all = keys == sizes.keys;
  for (int64_t key = 0; key < keys; ++key) {
    one.weights[key] = -kInfinity;
    if (!is_seen(key)) {
      sees_all = false;
      continue;
    }
    ask_for_row(one.key, key, sizes.width);
    Lanes sums = {};
    for (int64_t column = 0; column < sizes.width; column += kLanes) {
      const int64_t wide = sizes.width - column;
      sums += part<Lanes>(one.query + column, wide) * part<Lanes>(one.key[key] + column, wide);
    }
    one.weights[key] = sum(sums) * sight.scale + (sight.bias ? sight.bias[key * sight.bias_right] : 0.0f);
    top = one.weights[key] > top ? one.weights[key] : top;
  }
  if (top == -kInfinity || (!sees_all && sight.fill - top > -87.0f)) return false;
  std::fill_n(one.weights + keys, kLanes, -kInfinity);
  Lanes sums = {};
  for (int64_t key = 0; key < keys; key += kLanes) {
    const Lanes weights = weight_of(load(one.weights + key) - top);
    sums += weights;
    store(one.weights + key, weights);
  }
  const float total = sum(sums);
  for (int64_t first = 0; first < sizes.depth; first += 4 * kLanes)
    mix(one, keys, first, std::min(4 * kLanes, sizes.depth - first), 1.0f / total, is_seen);
  *one.normaliser = top + std::log(total);
  return true;
}

}  // namespace pcp
