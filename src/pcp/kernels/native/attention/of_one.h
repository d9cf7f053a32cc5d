// Attention of single queries, as of a model that reads one token: a product of a matrix and a vector, which waits for memory alone. Keys
// and values are read once, where they lie, and no further than to the last one that is seen.
//
// The heads of a model lie side by side in a row of its cache, so several are computed together, a few rows at a time, and threads share
// the work by keys: where one read some heads and another the others, rows came from memory at half the rate.
#pragma once

#include <vector>

#include "layout.h"
#include "../rows.h"
#include "../scratch.h"

namespace pcp {

constexpr int64_t kFew = 8;  // queries that are computed one by one: for more, keys are worth copying
static_assert(kFew <= kWide);
constexpr int64_t kRows = 8;       // of keys, or of values, that one query reads before the next one does
constexpr int64_t kChunk = 32;     // keys that are a part of the work
constexpr int64_t kTogether = 32;  // queries at most that read a row together
static_assert(kChunk % kLanes == 0 && kChunk % kRows == 0);

// One query, its keys and values, and where its result goes.
struct One {
  const float* query;
  Lines<const float> key, value;
  Sight sight;
  float* result;
  Pages pages;
  Lines<float> normaliser;      // its largest score, and the logarithm of the sum of its weights beside that
  int64_t begin = 0, keys = 0;  // it sees none before the one, and from the other on

  bool is_seen(int64_t key) const { return !sight.mask || sight.mask[key * sight.mask_right]; }
};

// What chunks of keys give, chunk after chunk of every query: their largest score, the sum of their weights and that of weighted values,
// and whether a key of them is not seen. There is room for a multiple of kLanes of each query; what is missing sees no key.
struct Chunks {
  int64_t count, room = divided_up(count, kLanes) * kLanes;
  float *tops, *totals, *mixed;
  bool* hide;
};

// Asks for a row that is read soon.
inline void ask_for_row(Lines<const float> rows, int64_t row, int64_t width) {
  constexpr int64_t kLine = 16;
  for (int64_t column = 0; column < width; column += kLine) __builtin_prefetch(rows[row + kRows] + column);
}

// Scores of a query with keys [first, last), kRows at most, the largest, and whether some are not seen.
inline void score_rows(const Sizes& sizes, const One& one, int64_t first, int64_t last, float* room, float* scores, float& top,
                       bool& hides) {
  const int64_t whole = sizes.width / kLanes * kLanes;
  const Lines<const float> keys = one.pages.keys(one.key, first, last, sizes.width, room);
  for (int64_t key = first; key < last; ++key, ++scores) {
    *scores = -kInfinity;
    if (!one.is_seen(key)) {
      hides = true;
      continue;
    }
    ask_for_row(keys, key, sizes.width);
    const float* at = keys[key];
    Lanes sums = {};
    for (int64_t column = 0; column < whole; column += kLanes) sums += load(one.query + column) * load(at + column);
    if (whole < sizes.width) sums += load_part(one.query + whole, sizes.width - whole) * load_part(at + whole, sizes.width - whole);
    *scores = sum(sums) * one.sight.scale + (one.sight.bias ? one.sight.bias[key * one.sight.bias_right] : 0.0f);
    top = *scores > top ? *scores : top;
  }
}

// Adds values [first, last) times their weights to a sum, which the first of them begin: `count` vectors of columns, of the last of
// which `rest` are there.
template <int64_t count>
void mix_columns(const One& one, Lines<const float> values, int64_t first, int64_t last, const float* weights, int64_t column,
                 int64_t rest, float* to, bool begins) {
  const Lines<const float> value{values.at + column, values.apart};
  constexpr int64_t kLast = (count - 1) * kLanes;
  Lanes sums[count] = {};
  if (!begins) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < count - 1; ++i) sums[i] = load(to + i * kLanes);
    sums[count - 1] = part<Lanes>(to + kLast, rest);
  }
  for (int64_t key = first; key < last; ++key, ++weights) {
    if (!one.is_seen(key) || !one.pages.holds(key)) continue;
    ask_for_row(value, key, kLast + rest);
    const float *at = value[key], weight = *weights;
#pragma GCC unroll 4
    for (int64_t i = 0; i < count - 1; ++i) sums[i] += load(at + i * kLanes) * weight;
    sums[count - 1] += part<Lanes>(at + kLast, rest) * weight;
  }
#pragma GCC unroll 4
  for (int64_t i = 0; i < count - 1; ++i) store(to + i * kLanes, sums[i]);
  put(to + kLast, sums[count - 1], rest);
}

inline void mix_rows(const Sizes& sizes, const One& one, int64_t first, int64_t last, float* room, const float* weights, float* to,
                     bool begins) {
  const Lines<const float> values = one.pages.values(one.value, first, last, sizes.depth, room);
  int64_t column = 0;
  for (; sizes.depth - column >= 4 * kLanes; column += 4 * kLanes)
    mix_columns<4>(one, values, first, last, weights, column, kLanes, to + column, begins);
  for (; column < sizes.depth; column += kLanes)
    mix_columns<1>(one, values, first, last, weights, column, std::min(kLanes, sizes.depth - column), to + column, begins);
}

// Finds between which keys are those that each sees, and returns the end of all.
inline int64_t find_keys(const Sizes& sizes, std::vector<One>& ones) {
  int64_t most = 0;
  const One* before = nullptr;
  for (One& one : ones) {
    one.keys = one.sight.causal ? std::clamp<int64_t>(one.sight.offset + 1, 0, sizes.keys) : sizes.keys;
    one.begin = one.sight.window ? std::clamp<int64_t>(one.sight.oldest(0), 0, one.keys) : 0;
    if (before && one.sight.mask == before->sight.mask && one.sight.offset == before->sight.offset)
      one.keys = before->keys;
    else
      while (one.keys > one.begin && !one.is_seen(one.keys - 1)) --one.keys;
    before = &one;
    most = std::max(most, one.keys);
  }
  return most;
}

// One chunk of keys of queries [begin, end), kTogether of them at most.
inline void attend_chunk(const Sizes& sizes, const std::vector<One>& ones, int64_t begin, int64_t end, int64_t chunk, const Chunks& to) {
  float weights[kTogether][kChunk];
  std::vector<float> room(ones[begin].pages.is_narrow() ? kRows * std::max(sizes.width, sizes.depth) : 0);
  const int64_t from = chunk * kChunk;
  // Calls `work(i, first, last)` for all rows of the chunk that each sees, a few of each in turn, which are of one page.
  const auto for_rows = [&](const auto& work) {
    for (int64_t first = from; first < from + kChunk; first += kRows)
      for (int64_t i = begin; i < end; ++i)
        for (int64_t row = std::max(first, ones[i].begin), last = std::min(first + kRows, ones[i].keys); row < last;) {
          const int64_t end = ones[i].pages.end(row, last);
          work(i, row, end);
          row = end;
        }
  };
  for_rows([&](int64_t i, int64_t first, int64_t last) {
    score_rows(sizes, ones[i], first, last, room.data(), weights[i - begin] + first - from, to.tops[i * to.room + chunk], to.hide[i * to.room + chunk]);
  });
  for (int64_t i = begin; i < end; ++i) {
    float &top = to.tops[i * to.room + chunk], *at = weights[i - begin];
    const int64_t keys = std::clamp<int64_t>(ones[i].keys - from, 0, kChunk), some = std::clamp<int64_t>(ones[i].begin - from, 0, keys);
    std::fill(at, at + some, -kInfinity);
    std::fill(at + keys, at + kChunk, -kInfinity);
    if (top == -kInfinity && std::any_of(at + some, at + keys, [](float x) { return std::isnan(x); })) top = NAN;
    Lanes sums = {};
    for (int64_t key = 0; key < kChunk && top != -kInfinity; key += kLanes) {
      const Lanes found = weight_of(load(at + key) - top);
      sums += found;
      store(at + key, found);
    }
    to.totals[i * to.room + chunk] = sum(sums);
  }
  for_rows([&](int64_t i, int64_t first, int64_t last) {
    mix_rows(sizes, ones[i], first, last, room.data(), weights[i - begin] + first - from, to.mixed + (i * to.count + chunk) * sizes.depth,
             first == std::max(from, ones[i].begin));
  });
}

// Puts together what chunks gave a query. False if keys count in its result that it does not see, and then there is none.
inline bool complete(const Sizes& sizes, const One& one, int64_t place, const Chunks& of) {
  const float *tops = of.tops + place * of.room, *totals = of.totals + place * of.room;
  const int64_t count = divided_up(one.keys, kChunk);
  float top = -kInfinity;
  bool hides = one.begin > 0 || one.keys < sizes.keys;
  for (int64_t chunk = 0; chunk < count; ++chunk) {
    top = tops[chunk] > top ? tops[chunk] : top;
    hides |= of.hide[place * of.room + chunk];
  }
  if (top == -kInfinity || (hides && one.sight.fill - top > -87.0f)) return false;
  float parts[kLanes];
  Lanes sums = {};
  for (int64_t chunk = 0; chunk < count; chunk += kLanes) sums += weight_of(load(tops + chunk) - top) * load(totals + chunk);
  const float total = sum(sums);
  one.normaliser[0][0] = top;
  one.normaliser[1][0] = std::log(total);
  std::fill_n(one.result, sizes.depth, 0.0f);
  for (int64_t chunk = 0; chunk < count; ++chunk) {
    if (chunk % kLanes == 0) store(parts, weight_of(load(tops + chunk) - top) * (1.0f / total));
    if (tops[chunk] == -kInfinity) continue;
    const float* mixed = of.mixed + (place * of.count + chunk) * sizes.depth;
    for (int64_t column = 0; column < sizes.depth; column += kLanes) {
      const int64_t wide = sizes.depth - column;
      const Lanes more = part<Lanes>(mixed + column, wide) * parts[chunk % kLanes];
      put(one.result + column, part<Lanes>(one.result + column, wide) + more, wide);
    }
  }
  return true;
}

}  // namespace pcp
