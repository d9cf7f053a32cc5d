// Means that are taken off keys and values before these are rounded. What is added to all keys changes no weight, and what is added to all
// values is added to every result; where keys or values are nearly alike, rounding would lose how they differ.
#pragma once

#include "layout.h"
#include "../rows.h"
#include "../scratch.h"

namespace pcp {

// Whether some query of a set sees a key.
inline bool is_seen(const Sizes& sizes, const Heads& heads, int64_t key) {
  const Sight& sight = heads.sight;
  if (key >= sight.seen(sizes.queries, sizes.keys)) return false;
  const int64_t groups = heads.mask_apart ? sizes.groups : 1, queries = sight.mask_down ? sizes.queries : 1;
  bool seen = !sight.mask;
  for (int64_t group = 0; !seen && group < groups; ++group)
    for (int64_t query = 0; !seen && query < queries; ++query)
      seen = sight.mask[group * heads.mask_apart + query * sight.mask_down + key * sight.mask_right];
  return seen;
}

// Of the keys and values of a set that are seen. Numbers that are not rounded have none taken off.
template <typename Panels>
class Centre {
 public:
  static constexpr bool kIsAny = Panels::kNumbers > 1;

  Centre(const Sizes& sizes, Pieces& pieces)
      : sizes_(sizes),
        key_at_(pieces.add<float>(kIsAny ? sizes.width : 0)),
        value_at_(pieces.add<float>(kIsAny ? sizes.depth : 0)),
        rows_at_(pieces.add<float>(kIsAny ? kKeysOf<Panels> * std::max(sizes.width, sizes.depth) : 0)) {}

  // Once pieces have memory.
  void find(const Heads& heads, const Pieces& pieces) {
    if constexpr (!kIsAny) return;
    key_ = pieces.at<float>(key_at_), value_ = pieces.at<float>(value_at_), rows_ = pieces.at<float>(rows_at_);
    std::fill_n(key_, sizes_.width, 0.0f);
    std::fill_n(value_, sizes_.depth, 0.0f);
    int64_t count = 0;
    for (int64_t key = 0; key < sizes_.keys; ++key)
      if (is_seen(sizes_, heads, key)) {
        const float *of_key = heads.key.of(0, key).at, *of_value = heads.value.of(0, key).at;
        each(sizes_.width, key_, [&](Lanes sums, int64_t i, int64_t there) { return sums + part<Lanes>(of_key + i, there); });
        each(sizes_.depth, value_, [&](Lanes sums, int64_t i, int64_t there) { return sums + part<Lanes>(of_value + i, there); });
        ++count;
      }
    const auto mean = [&](Lanes sums, int64_t, int64_t) {
      const Lanes found = sums / static_cast<float>(count);
      return found - found == 0.0f ? found : Lanes{};
    };
    each(sizes_.width, key_, mean);
    each(sizes_.depth, value_, mean);
  }

  Lines<const float> keys(const Heads& heads, int64_t key, int64_t count) const {
    return without(heads.key.of(0, key), count, sizes_.width, key_);
  }
  Lines<const float> values(const Heads& heads, int64_t key, int64_t count) const {
    return without(heads.value.of(0, key), count, sizes_.depth, value_);
  }
  // What a query's scores with all keys have lost.
  float of_scores(const float* query, float scale) const {
    if constexpr (!kIsAny) return 0;
    Lanes sums = {};
    for (int64_t i = 0; i < sizes_.width; i += kLanes) sums += part<Lanes>(query + i, sizes_.width - i) * part<Lanes>(key_ + i, sizes_.width - i);
    const float found = sum(sums) * scale;
    return std::isfinite(found) ? found : 0;
  }
  float key(int64_t column) const { return kIsAny ? key_[column] : 0; }
  float value(int64_t column) const { return kIsAny ? value_[column] : 0; }
  // What values have lost of a result, of some columns.
  Lanes values(int64_t column) const { return kIsAny ? part<Lanes>(value_ + column, sizes_.depth - column) : Lanes{}; }

 private:
  // Numbers become what is made of as many at once as lanes.
  template <typename Work>
  static void each(int64_t width, float* at, const Work& work) {
    for (int64_t i = 0; i < width; i += kLanes) put(at + i, work(part<Lanes>(at + i, width - i), i, width - i), width - i);
  }
  Lines<const float> without(Lines<const float> rows, int64_t count, int64_t width, const float* mean) const {
    if constexpr (!kIsAny) return rows;
    for (int64_t row = 0; row < count; ++row)
      for (int64_t i = 0; i < width; i += kLanes)
        put(rows_ + row * width + i, part<Lanes>(rows[row] + i, width - i) - part<Lanes>(mean + i, width - i), width - i);
    return {rows_, width};
  }

  const Sizes& sizes_;
  size_t key_at_, value_at_, rows_at_;
  float *key_ = nullptr, *value_ = nullptr, *rows_ = nullptr;
};

}  // namespace pcp
