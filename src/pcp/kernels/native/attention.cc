// Attention and its gradient, without scores in memory: every head's keys are copied once into the order in which the innermost
// loop of a product reads them, and meet the queries tile by tile.
//
// Handlers are called by whatever program names them, so they look at every shape and attribute before they touch memory.

#include "attention/centre.h"
#include "attention/layout.h"
#include "attention/of_one.h"
#include "panels/tiles.h"
#include "rows.h"
#include "scratch.h"

namespace ffi = xla::ffi;

namespace pcp {
namespace {

constexpr int64_t kEnough = 16;  // parts of the gradient, however many threads there are: they decide the order of sums

ffi::Error no_memory() {
  return ffi::Error(ffi::ErrorCode::kResourceExhausted, "pcp attention: there is no memory for copies of the operands");
}

// Results of panels [begin, end) of the queries of a set, those of one group after those of another; false if there is no memory.
template <typename Panels>
bool attend(const Sizes& sizes, const Heads& heads, Groups<float> result, Lines<float> normalisers, int64_t begin, int64_t end) {
  using Word = typename Panels::Word;
  constexpr int64_t kHigh = Panels::kHigh, kKeys = kKeysOf<Panels>;
  const typename Panels::Scope in_use;
  const int64_t panels = sizes.panels(), of_key = Panels::left_size(sizes.width), of_value = Panels::left_size(kKeys);
  const int64_t block_of_values = divided_up(sizes.depth, kHigh) * of_value;
  Pieces pieces;
  const auto keys_at = pieces.add<Word>(divided_up(sizes.keys, kHigh) * of_key);
  const auto values_at = pieces.add<Word>(sizes.blocks(kKeys) * block_of_values);
  const auto query_at = pieces.add<Word>(Panels::right_size(sizes.width));
  const auto weights_at = pieces.add<Word>(Panels::right_size(kKeys)), scaled_at = pieces.add<float>(kWide * sizes.width);
  const auto scores_at = pieces.add<float>(kKeys * kWide), mixed_at = pieces.add<float>(sizes.depth * kWide);
  const auto copied_at = pieces.add<bool>(sizes.blocks(kKeys));
  Centre<Panels> centre(sizes, pieces);
  if (!pieces.take()) return false;
  centre.find(heads, pieces);
  Word *keys = pieces.at<Word>(keys_at), *values = pieces.at<Word>(values_at), *query = pieces.at<Word>(query_at);
  Word* weights = pieces.at<Word>(weights_at);
  float *scores = pieces.at<float>(scores_at), *mixed = pieces.at<float>(mixed_at);
  bool* copied = std::fill_n(pieces.at<bool>(copied_at), sizes.blocks(kKeys), false) - sizes.blocks(kKeys);
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t group = panel / panels, first = panel % panels * kWide, count = std::min<int64_t>(kWide, sizes.queries - first);
    const Sight sight = heads.sight_of(group);
    copy_queries<Panels>(heads.query.of(group, first), count, sizes.width, sight.scale, pieces.at<float>(scaled_at), query);
    float lost[kWide] = {};
    for (int64_t i = 0; i < count; ++i) lost[i] = centre.of_scores(heads.query.of(group, first + i).at, sight.scale);
    Softmax softmax;
    std::fill_n(mixed, sizes.depth * kWide, 0.0f);
    const int64_t seen = sight.seen(first + count, sizes.keys), start = sight.unseen(first) / kKeys * kKeys;
    for (int64_t key = start; key < seen; key += kKeys) {
      const int64_t here = std::min(kKeys, seen - key), block = key / kKeys;
      if (!copied[block]) {
        const int64_t there = std::min(kKeys, sizes.keys - key);
        copy_rows<Panels>(centre.keys(heads, key, there), there, sizes.width, keys + key / kHigh * of_key);
        copy_turned<Panels>(centre.values(heads, key, there), there, sizes.depth, kKeys, values + block * block_of_values);
        copied[block] = true;
      }
      multiply_rows<Panels>(here, sizes.width, of_key, keys + key / kHigh * of_key, query, scores, kWide, false);
      see(sight, scores, here, key, first, count, lost);
      Queries shrink;
      if (softmax.take<Panels>(scores, here, key == start, weights, shrink))
        for (int64_t row = 0; row < sizes.depth; ++row)
          for (int half = 0; half < 2; ++half) {
            float* place = mixed + row * kWide + half * kRegister;
            const Register x = numbers_of(place) * shrink[half];
            std::memcpy(place, &x, sizeof x);
          }
      multiply_rows<Panels>(sizes.depth, here, of_value, values + block * block_of_values, weights, mixed, kWide, true);
    }
    for (int64_t row = 0; row < sizes.depth; ++row)
      for (int half = 0; half < 2; ++half) {
        float* place = mixed + row * kWide + half * kRegister;
        const Register x = numbers_of(place) / softmax.sums[half] + centre.value(row);
        std::memcpy(place, &x, sizeof x);
      }
    return_queries(mixed, sizes.depth, count, result.of(group, first), false);
    for (int64_t i = 0; i < count; ++i) {
      const int half = i / kRegister, lane = i % kRegister;
      const int64_t query = group * sizes.queries + first + i;
      normalisers[0][query] = Softmax::finite(softmax.beside[half])[lane] + lost[i];
      normalisers[1][query] = std::log(softmax.sums[half][lane]);
    }
  }
  return true;
}

// Of one set, with keys and values in a row, copied from their pages if they are in some; false if there is no memory for them.
bool in_a_row(const Call& call, int64_t set, Heads& heads, Scratch& copy) {
  const Pages pages = call.pages_of(set);
  if (!pages.table) return true;
  const Sizes& of = call.sizes;
  float *key = copy.as<float>(), *value = key + of.keys * of.width;
  if (!key) return false;
  for (int64_t row = 0; row < of.keys; ++row) {
    float *to_key = key + row * of.width, *to_value = value + row * of.depth;
    if (const float* found = pages.keys(heads.key.lines, row, row + 1, of.width, to_key)[row]; found != to_key)
      std::copy_n(found, of.width, to_key);
    if (pages.holds(row)) {
      if (const float* found = pages.values(heads.value.lines, row, row + 1, of.depth, to_value)[row]; found != to_value)
        std::copy_n(found, of.depth, to_value);
    } else
      std::fill_n(value + row * of.depth, of.depth, 0.0f);
  }
  heads.key = {{key, of.width}, 0}, heads.value = {{value, of.depth}, 0};
  return true;
}

// Results of few queries; false if there is no memory.
template <typename Panels>
bool attend_few(ffi::ThreadPool& pool, const Call& call, float* result, Lines<float> normalisers) {
  const Sizes& sizes = call.sizes;
  const Layout& layout = call.layout;
  const int64_t sets = layout.sets(), of_set = sizes.groups * sizes.queries;
  std::vector<One> ones;
  ones.reserve(sets * of_set);
  for (int64_t set = 0; set < sets; ++set) {
    const Heads heads = call.heads(set);
    const Pages pages = call.pages_of(set);
    const auto to = layout.grouped(result, layout.result, set);
    for (int64_t i = 0; i < of_set; ++i) {
      const int64_t group = i / sizes.queries, query = i % sizes.queries;
      ones.push_back({heads.query.of(group, query).at, heads.key.of(0, 0), heads.value.of(0, 0), heads.sight_of(group).from(query),
                      to.of(group, query).at, pages, {normalisers[0] + set * of_set + i, normalisers.apart}});
    }
  }
  const int64_t count = static_cast<int64_t>(ones.size());
  Chunks chunks{divided_up(find_keys(sizes, ones), kChunk)};
  Pieces pieces;
  const auto tops_at = pieces.add<float>(count * chunks.room), totals_at = pieces.add<float>(count * chunks.room);
  const auto mixed_at = pieces.add<float>(count * chunks.count * sizes.depth), hide_at = pieces.add<bool>(count * chunks.room);
  if (!pieces.take()) return false;
  chunks.tops = std::fill_n(pieces.at<float>(tops_at), count * chunks.room, -kInfinity) - count * chunks.room;
  chunks.totals = std::fill_n(pieces.at<float>(totals_at), count * chunks.room, 0.0f) - count * chunks.room;
  chunks.hide = std::fill_n(pieces.at<bool>(hide_at), count * chunks.room, false) - count * chunks.room;
  chunks.mixed = pieces.at<float>(mixed_at);
  const int64_t side_by_side = of_set * (layout.batch.size() ? layout.batch.back() : 1), together = std::min(kTogether, side_by_side);
  parallel_for(pool, divided_up(count, together) * chunks.count, 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t begin = task / chunks.count * together;
      attend_chunk(sizes, ones, begin, std::min(count, begin + together), task % chunks.count, chunks);
    }
  });
  std::atomic<bool> has_memory{true};
  parallel_for(pool, sets * sizes.groups, divided_up(kTogether, sizes.queries), [&](int64_t first, int64_t last) {
    for (int64_t place = first; place < last; ++place) {
      bool is_complete = true;
      for (int64_t i = place * sizes.queries; i < (place + 1) * sizes.queries; ++i) is_complete &= complete(sizes, ones[i], i, chunks);
      const int64_t set = place / sizes.groups, group = place % sizes.groups;
      if (is_complete) continue;
      Heads heads = call.heads(set);
      Scratch copy(call.pages.table ? sizes.keys * (sizes.width + sizes.depth) * static_cast<int64_t>(sizeof(float)) : 1);
      if (!in_a_row(call, set, heads, copy) ||
          !attend<Panels>(sizes, heads, layout.grouped(result, layout.result, set), {normalisers[0] + set * of_set, normalisers.apart},
                          group, group + 1))
        has_memory = false;
    }
  });
  return has_memory;
}

// What the gradient is made from, and where it goes: of one set of keys.
struct Backward {
  Groups<const float> cotangent, result;
  Lines<const float> normalisers;
  Groups<float> for_query, for_key, for_value;
};

// Adds to the gradient of the queries, which lies as panels of `width` rows of kWide lanes, and completes that of blocks
// [begin, end) of keys and values; false if there is no memory.
template <typename Panels>
bool attend_back(const Sizes& sizes, const Heads& heads, const Backward& back, float* for_queries, int64_t begin, int64_t end) {
  using Word = typename Panels::Word;
  constexpr int64_t kHigh = Panels::kHigh, kKeys = kKeysOf<Panels>;
  const typename Panels::Scope in_use;
  const int64_t panels = sizes.panels(), every = sizes.groups * panels;
  const int64_t of_key = Panels::left_size(sizes.width), of_value = Panels::left_size(sizes.depth);
  const int64_t of_column = Panels::left_size(kKeys), of_rows = Panels::right_size(kWide);
  const int64_t wide = divided_up(sizes.width, kWide), broad = divided_up(sizes.depth, kWide);
  const int64_t turned_query = Panels::right_size(sizes.width), turned_cotangent = Panels::right_size(sizes.depth);
  const int64_t of_panel = turned_query + turned_cotangent + (wide + broad) * of_rows;
  Pieces pieces;
  const auto copies_at = pieces.add<Word>(every * of_panel), inner_at = pieces.add<float>(every * kWide);
  const auto keys_at = pieces.add<Word>(kKeys / kHigh * of_key), values_at = pieces.add<Word>(kKeys / kHigh * of_value);
  const auto columns_at = pieces.add<Word>(divided_up(sizes.width, kHigh) * of_column);
  const auto scaled_at = pieces.add<float>(kWide * sizes.width);
  const auto left_at = pieces.add<Word>(Panels::left_size(kWide)), right_at = pieces.add<Word>(Panels::right_size(kKeys));
  const auto weights_at = pieces.add<float>(kKeys * kWide), slopes_at = pieces.add<float>(kKeys * kWide);
  const auto for_keys_at = pieces.add<float>(kKeys * wide * kWide), for_values_at = pieces.add<float>(kKeys * broad * kWide);
  const auto lost_at = pieces.add<float>(every * kWide), unseen_at = pieces.add<float>(every * kWide);
  Centre<Panels> centre(sizes, pieces);
  if (!pieces.take()) return false;
  centre.find(heads, pieces);
  float *lost = std::fill_n(pieces.at<float>(lost_at), every * kWide, 0.0f) - every * kWide;
  float *unseen = std::fill_n(pieces.at<float>(unseen_at), every * kWide, 0.0f) - every * kWide;
  Word *copies = pieces.at<Word>(copies_at), *left = pieces.at<Word>(left_at);
  Word *keys = pieces.at<Word>(keys_at), *values = pieces.at<Word>(values_at), *columns = pieces.at<Word>(columns_at);
  float *inner = pieces.at<float>(inner_at), *weights = pieces.at<float>(weights_at), *slopes = pieces.at<float>(slopes_at);
  float *for_keys = pieces.at<float>(for_keys_at), *for_values = pieces.at<float>(for_values_at);
  for (int64_t panel = 0; panel < every; ++panel) {
    const int64_t group = panel / panels, first = panel % panels * kWide, count = std::min<int64_t>(kWide, sizes.queries - first);
    if (heads.sight.misses(first, first + count, begin * kKeys, end * kKeys)) continue;
    const auto query = heads.query.of(group, first), cotangent = back.cotangent.of(group, first);
    const auto result = back.result.of(group, first);
    Word* to = copies + panel * of_panel;
    copy_queries<Panels>(query, count, sizes.width, heads.sight.scale, pieces.at<float>(scaled_at), to);
    Panels::copy_right(cotangent.at, cotangent.apart, 1, count, sizes.depth, to += turned_query);
    to += turned_cotangent;
    for (int64_t column = 0; column < sizes.width; column += kWide, to += of_rows)
      Panels::copy_right(query.at + column, 1, query.apart, std::min<int64_t>(kWide, sizes.width - column), count, to);
    for (int64_t column = 0; column < sizes.depth; column += kWide, to += of_rows)
      Panels::copy_right(cotangent.at + column, 1, cotangent.apart, std::min<int64_t>(kWide, sizes.depth - column), count, to);
    // The sum over keys of weight times its cotangent is that over the width of result times its cotangent.
    for (int64_t i = 0; i < count; ++i) {
      Lanes sums = {};
      for (int64_t j = 0; j < sizes.depth; j += kLanes)
        sums += (part<Lanes>(result[i] + j, sizes.depth - j) - centre.values(j)) * part<Lanes>(cotangent[i] + j, sizes.depth - j);
      inner[panel * kWide + i] = sum(sums);
      lost[panel * kWide + i] = centre.of_scores(query[i], heads.sight.scale);
    }
    std::fill_n(inner + panel * kWide + count, kWide - count, 0.0f);
  }
  for (int64_t block = begin; block < end; ++block) {
    const int64_t key = block * kKeys, have = std::min(kKeys, sizes.keys - key);
    copy_rows<Panels>(centre.values(heads, key, have), have, sizes.depth, values);
    const auto centred = centre.keys(heads, key, have);
    copy_rows<Panels>(centred, have, sizes.width, keys);
    copy_turned<Panels>(centred, have, sizes.width, kKeys, columns);
    std::fill_n(for_keys, have * wide * kWide, 0.0f);
    std::fill_n(for_values, have * broad * kWide, 0.0f);
    for (int64_t panel = 0; panel < every; ++panel) {
      const int64_t group = panel / panels, first = panel % panels * kWide, count = std::min<int64_t>(kWide, sizes.queries - first);
      const Sight sight = heads.sight_of(group);
      if (sight.misses(first, first + count, key, key + have)) continue;
      const int64_t here = std::min(have, sight.seen(first + count, sizes.keys) - key);
      const Word *turned = copies + panel * of_panel, *rows = turned + turned_query + turned_cotangent;
      multiply_rows<Panels>(here, sizes.width, of_key, keys, turned, weights, kWide, false);
      see(sight, weights, here, key, first, count, lost + panel * kWide);
      multiply_rows<Panels>(here, sizes.depth, of_value, values, turned + turned_query, slopes, kWide, false);
      for (int half = 0; half < 2; ++half) {
        const int64_t query = first + half * kRegister, there = count - half * kRegister;
        const int64_t place = group * sizes.queries + query, some = std::max<int64_t>(0, there);
        const int64_t lanes = panel * kWide + half * kRegister;
        const Register largest = part<Register>(back.normalisers[0] + place, some) - numbers_of(lost + lanes);
        const Register logarithm = part<Register>(back.normalisers[1] + place, some);
        const Register mean = numbers_of(inner + lanes);
        Register hidden = numbers_of(unseen + lanes);
        const bool all = sight.is_clear(query, kRegister, key, key + here - 1);
        for (int64_t k = 0; k < here; ++k) {
          float *weight = weights + k * kWide + half * kRegister, *slope = slopes + k * kWide + half * kRegister;
          const Register x = weight_of(numbers_of(weight) - largest - logarithm);
          Register change = x * (numbers_of(slope) - mean) * sight.scale;
          if (!all && !sight.is_clear(query, kRegister, key + k, key + k)) {
            const Places seen = sight.visible(query, there, key + k);
            hidden += seen || x == 0.0f ? Register{} : change;
            change = seen ? change : Register{};
          }
          std::memcpy(weight, &x, sizeof x);
          std::memcpy(slope, &change, sizeof change);
        }
        std::memcpy(unseen + lanes, &hidden, sizeof hidden);
      }
      for (int64_t row = 0; row < here; row += kHigh) {
        const int64_t high = std::min<int64_t>(kHigh, here - row);
        Panels::copy_left(slopes + row * kWide, kWide, 1, high, count, left);
        for (int64_t c = 0; c < wide; ++c)
          multiply_panels<Panels>(count, left, rows + c * of_rows, for_keys + (row * wide + c) * kWide, wide * kWide, high, true);
        Panels::copy_left(weights + row * kWide, kWide, 1, high, count, left);
        for (int64_t c = 0; c < broad; ++c)
          multiply_panels<Panels>(count, left, rows + (wide + c) * of_rows, for_values + (row * broad + c) * kWide, broad * kWide,
                                high, true);
      }
      const Word* right = as_right<Panels>(slopes, here, pieces.at<Word>(right_at));
      multiply_rows<Panels>(sizes.width, here, of_column, columns, right, for_queries + panel * sizes.width * kWide, kWide, true);
    }
    for (int64_t row = 0; row < have; ++row) {
      std::copy_n(for_keys + row * wide * kWide, sizes.width, back.for_key.of(0, key + row).at);
      std::copy_n(for_values + row * broad * kWide, sizes.depth, back.for_value.of(0, key + row).at);
    }
  }
  // Changes of all scores of a query add up to zero, so what its keys have lost counts only where some have a score of their own.
  for (int64_t place = 0; Centre<Panels>::kIsAny && place < every * kWide; ++place)
    for (int64_t i = 0; unseen[place] != 0.0f && i < sizes.width; ++i)
      for_queries[(place / kWide * sizes.width + i) * kWide + place % kWide] -= unseen[place] * centre.key(i);
  return true;
}

// What is added to all keys changes no weight, so their gradients add up to zero: this takes off what rounding leaves of the sum.
void take_mean_off(Lines<float> rows, int64_t count, int64_t width) {
  for (int64_t column = 0; column < width; column += kLanes) {
    const int64_t wide = std::min(kLanes, width - column);
    Lanes mean = {};
    for (int64_t row = 0; row < count; ++row) mean += part<Lanes>(rows[row] + column, wide);
    mean /= static_cast<float>(count);
    mean = mean - mean == 0.0f ? mean : Lanes{};
    for (int64_t row = 0; row < count; ++row) put(rows[row] + column, part<Lanes>(rows[row] + column, wide) - mean, wide);
  }
}

// For every query a mean of values, a score beside which its weights are taken, and the logarithm of their sum: the sum of both would
// lose the second where every key is hidden by a score such as -1e30.
template <typename Form>
ffi::Error attention(ffi::ThreadPool pool, Array query, ffi::AnyBuffer key, ffi::AnyBuffer value, ffi::RemainingArgs masks, Result result,
                     Result normalisers, Layout layout) {
  Call call{layout, {}};
  if (auto error = take(call, query, key, value, masks); error.failure()) return error;
  if (auto words = complaint(call, result->element_count(), normalisers->element_count()); !words.empty()) return refused(words);
  const Sizes& sizes = call.sizes;
  if (call.pages.table && sizes.queries > kFew) return refused("pages are read by few queries alone");
  ask_for_huge_pages_of(result);
  const int64_t sets = layout.sets(), every = sizes.groups * sizes.panels(), threads = std::max<int64_t>(1, pool.num_threads());
  const int64_t of_set = sizes.groups * sizes.queries;
  const Lines<float> kept{normalisers->typed_data(), sets * of_set};
  std::atomic<bool> has_memory{true};
  const auto each = [&](auto panels) {
    if (!attend_few<decltype(panels)>(pool, call, result->typed_data(), kept)) has_memory = false;
  };
  const auto tiled = [&](auto panels) {
    using Panels = decltype(panels);
    const int64_t parts = std::min(every, divided_up(4 * threads, sets)), grain = divided_up(every, parts);
    parallel_for(pool, sets * parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t task = first; task < last; ++task) {
        const int64_t set = task / parts, begin = task % parts * grain;
        if (!attend<Panels>(sizes, call.heads(set), layout.grouped(result->typed_data(), layout.result, set),
                            {kept[0] + set * of_set, kept.apart}, begin, std::min(every, begin + grain)))
          has_memory = false;
      }
    });
  };
  by_panels<Form>([&](auto panels) { sizes.queries <= kFew ? each(panels) : tiled(panels); });
  return has_memory ? ffi::Error::Success() : no_memory();
}

// Also from the cotangent of the result, the result and what the forward kernel returned with it.
template <typename Form>
ffi::Error attention_gradient(ffi::ThreadPool pool, Array query, Array key, Array value, Array cotangent, Array result,
                              Array normalisers, ffi::RemainingArgs masks, Result for_query, Result for_key, Result for_value,
                              Layout layout) {
  Call call{layout, {}};
  if (auto error = take(call, query, key, value, masks); error.failure()) return error;
  if (auto words = complaint(call, result.element_count(), normalisers.element_count()); !words.empty()) return refused(words);
  const Sizes& sizes = call.sizes;
  if (call.pages.table) return refused("gradients read no pages");
  const std::vector<int64_t> of_queries{sizes.groups, sizes.queries}, of_keys{sizes.keys};
  for (auto words : {complaint("the cotangent", cotangent.element_count(), layout, of_queries, sizes.depth, layout.result),
                     complaint("the query's", for_query->element_count(), layout, of_queries, sizes.width, layout.for_query),
                     complaint("the key's", for_key->element_count(), layout, of_keys, sizes.width, layout.for_key),
                     complaint("the value's", for_value->element_count(), layout, of_keys, sizes.depth, layout.for_value)})
    if (!words.empty()) return refused(words);
  ask_for_huge_pages_of(for_query, for_key, for_value);
  return by_panels<Form>([&](auto panels) {
    using Panels = decltype(panels);
    const int64_t sets = layout.sets(), every = sizes.groups * sizes.panels(), of_set = every * sizes.width * kWide;
    const int64_t blocks = sizes.blocks(kKeysOf<Panels>), of_one = sizes.groups * sizes.queries;
    const int64_t parts = std::min(blocks, divided_up(kEnough, sets)), grain = divided_up(blocks, parts);
    Scratch kept(parts * sets * of_set * static_cast<int64_t>(sizeof(float)));
    float* for_queries = kept.as<float>();
    if (!for_queries) return no_memory();
    std::atomic<bool> has_memory{true};
    parallel_for(pool, sets * parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t task = first; task < last; ++task) {
        const int64_t set = task / parts, begin = task % parts * grain;
        const Backward back{layout.grouped<const float>(cotangent.typed_data(), layout.result, set),
                            layout.grouped<const float>(result.typed_data(), layout.result, set),
                            {normalisers.typed_data() + set * of_one, sets * of_one},
                            layout.grouped(for_query->typed_data(), layout.for_query, set),
                            layout.grouped(for_key->typed_data(), layout.for_key, set),
                            layout.grouped(for_value->typed_data(), layout.for_value, set)};
        std::fill_n(for_queries + task * of_set, of_set, 0.0f);
        if (!attend_back<Panels>(sizes, call.heads(set), back, for_queries + task * of_set, begin,
                               std::min(blocks, begin + grain)))
          has_memory = false;
      }
    });
    parallel_for(pool, sets, 1, [&](int64_t first, int64_t last) {
      for (int64_t set = first; set < last; ++set) {
        const auto to = layout.grouped(for_query->typed_data(), layout.for_query, set);
        for (int64_t panel = 0; panel < every; ++panel) {
          const int64_t row = panel % sizes.panels() * kWide, count = std::min<int64_t>(kWide, sizes.queries - row);
          for (int64_t part = 0; part < parts; ++part)
            return_queries(for_queries + (set * parts + part) * of_set + panel * sizes.width * kWide, sizes.width, count,
                           to.of(panel / sizes.panels(), row), part > 0);
        }
        if (Form::kNumbers > 1)
          take_mean_off(layout.grouped(for_key->typed_data(), layout.for_key, set).of(0, 0), sizes.keys, sizes.width);
      }
    });
    return has_memory ? ffi::Error::Success() : no_memory();
  });
}

}  // namespace
}  // namespace pcp

PCP_HANDLER(pcp_attention_f32, pcp::attention<pcp::Singles>);
PCP_HANDLER(pcp_attention_bf16, pcp::attention<pcp::Pairs>);
PCP_HANDLER(pcp_attention_gradient_f32, pcp::attention_gradient<pcp::Singles>);
PCP_HANDLER(pcp_attention_gradient_bf16, pcp::attention_gradient<pcp::Pairs>);
