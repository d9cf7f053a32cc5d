// How attention's operands lie, as attributes say it, and what is wrong with them.
#pragma once

#include <string>
#include <vector>

#include "../arrays.h"
#include "tiled.h"

namespace pcp {

inline xla::ffi::Error refused(const std::string& words) { return refused_by("attention", words); }

// Sizes of a set of keys, and the queries of all its groups.
struct Sizes {
  int64_t groups, queries, keys, width, depth;  // depth: of values and results

  int64_t panels() const { return divided_up(queries, kWide); }  // of the queries of a group
  int64_t blocks(int64_t of) const { return divided_up(keys, of); }
};

// Where an operand's rows of one set of keys lie, group after group.
template <typename T>
struct Groups {
  Lines<T> lines;
  int64_t apart = 0;

  Lines<T> of(int64_t group, int64_t row) const { return {lines[row] + group * apart, lines.apart}; }
};

// Where keys and values lie that are in pages, which a table gives to a set of keys in the order of its rows; without a table the rows
// follow each other.
struct Pages {
  const int32_t* table = nullptr;
  int64_t rows = 0, count = 0, key = 0, value = 0;  // rows of a page; pages; elements from one to the next, of keys and of values
  const bool* held = nullptr;                       // whether a value is what its page says; if not, it is 0
  int64_t held_right = 0;

  bool holds(int64_t row) const { return !held || held[row * held_right]; }
  // The end of those of the rows up to `last` that are in the page of one of them.
  int64_t end(int64_t row, int64_t last) const { return table ? std::min(last, (row / rows + 1) * rows) : last; }
  // Lines whose rows from one on to the end of its page are where the page is.
  Lines<const float> of(Lines<const float> lines, int64_t apart, int64_t row) const {
    if (!table) return lines;
    const int64_t place = row / rows, page = std::clamp<int64_t>(table[place], 0, count - 1);
    return {lines.at + (page * apart - place * rows * lines.apart), lines.apart};
  }
  Lines<const float> keys(Lines<const float> lines, int64_t row) const { return of(lines, key, row); }
  Lines<const float> values(Lines<const float> lines, int64_t row) const { return of(lines, value, row); }
};

// One set of keys and the queries that see it; `sight` is that of the first group.
struct Heads {
  Groups<const float> query, key, value;
  Sight sight;
  int64_t mask_apart, bias_apart;

  Sight sight_of(int64_t group) const {
    Sight found = sight;
    if (found.mask) found.mask += group * mask_apart;
    if (found.bias) found.bias += group * bias_apart;
    return found;
  }
};

// Attributes as they are given: sizes of the batch, the first elements of query, key and value in their arrays, then strides of each
// array: of the batch, of groups where it has them, of rows. Keys and values that are in pages have three sizes of a page, its rows and
// its elements from one to the next, strides of the table along the batch, and those of what is held, along the batch and the keys.
struct Layout {
  Numbers batch, sizes, starts, query, key, value, result, for_query, for_key, for_value, mask, bias, table, page, held;
  float scale, fill;
  int64_t causal, skips, offset, window;

  Sizes size() const { return {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]}; }
  int64_t sets() const {
    int64_t count = 1;
    for (int64_t size : batch) count *= size;
    return count;
  }
  int64_t start(Numbers strides, int64_t set) const {
    int64_t found = 0;
    for (size_t i = batch.size(); i-- > 0; set /= batch[i]) found += set % batch[i] * strides[i];
    return found;
  }
  template <typename T>
  Groups<T> grouped(T* at, Numbers strides, int64_t set) const {
    const size_t rank = batch.size();
    const bool has_groups = strides.size() == rank + 2;
    return {{at + start(strides, set), strides[rank + has_groups]}, has_groups ? strides[rank] : 0};
  }
};

// Of the operands of a call.
struct Call {
  const Layout& layout;
  Sizes sizes;
  const float *query, *key, *value;
  const bool* mask = nullptr;
  const float* bias = nullptr;
  Pages pages = {};

  Pages pages_of(int64_t set) const {
    Pages found = pages;
    if (found.table) found.table += layout.start(layout.table, set);
    if (found.held) found.held += layout.start(layout.held, set);
    return found;
  }

  Heads heads(int64_t set) const {
    const size_t rank = layout.batch.size();
    Heads found{layout.grouped(query, layout.query, set), layout.grouped(key, layout.key, set),
                layout.grouped(value, layout.value, set), {}, 0, 0};
    Sight& sight = found.sight;
    sight.scale = layout.scale, sight.fill = layout.fill, sight.offset = layout.offset;
    sight.causal = layout.causal, sight.skips = layout.skips, sight.window = layout.window;
    if (mask) {
      sight.mask = mask + layout.start(layout.mask, set), found.mask_apart = layout.mask[rank];
      sight.mask_down = layout.mask[rank + 1], sight.mask_right = layout.mask[rank + 2];
    }
    if (bias) {
      sight.bias = bias + layout.start(layout.bias, set), found.bias_apart = layout.bias[rank];
      sight.bias_down = layout.bias[rank + 1], sight.bias_right = layout.bias[rank + 2];
    }
    return found;
  }
};

// What is wrong with one operand or result: it has as many elements as its sizes say, or more if it is a part of them, and its
// strides stay within them.
inline std::string complaint(const char* name, int64_t elements, const Layout& layout, std::vector<int64_t> sizes, int64_t width,
                      Numbers strides, int64_t start = 0) {
  sizes.insert(sizes.begin(), layout.batch.begin(), layout.batch.end());
  int64_t expected = width;
  for (int64_t size : sizes)
    if (__builtin_mul_overflow(expected, size, &expected)) return "the sizes are too large";
  if (elements < expected || start < 0 || start > elements - width)
    return std::string(name) + " has " + std::to_string(elements) + " elements; its sizes say " + std::to_string(expected) +
           " from element " + std::to_string(start) + " on";
  return unreadable(name, elements - start - (width - 1), sizes, strides);
}

inline std::string complaint(const Layout& layout) {
  if (layout.sizes.size() != 5) return "there are " + std::to_string(layout.sizes.size()) + " sizes; expected five";
  if (layout.starts.size() != 3) return "there are " + std::to_string(layout.starts.size()) + " starts; expected three";
  for (Numbers each : {layout.sizes, layout.batch})
    for (int64_t size : each)
      if (size < 1) return "a size is " + std::to_string(size) + "; expected 1 or more";
  for (int64_t flag : {layout.causal, layout.skips})
    if (flag != 0 && flag != 1) return "causal or skips is " + std::to_string(flag) + "; expected 0 or 1";
  constexpr int64_t kFar = int64_t{1} << 40;
  if (layout.offset < -kFar || layout.offset > kFar) return "the offset is too large";
  if (layout.window < 0 || layout.window > kFar || (layout.window && !layout.causal))
    return "the window is " + std::to_string(layout.window) + "; expected 0, or some keys where causal is 1";
  const Sizes of = layout.size();
  if (of.queries > kFar || of.keys > kFar) return "the sizes are too large";
  if (layout.skips && (!layout.causal || layout.offset < 0 || (layout.window && of.queries + layout.offset - layout.window >= of.keys)))
    return "keys are skipped that are seen, or by queries that see none";
  return "";
}

// What is wrong with keys or values that lie in pages.
inline std::string complaint_of_pages(const char* name, int64_t elements, const Layout& layout, int64_t apart, int64_t width,
                                      Numbers strides, int64_t start) {
  if (apart < 1 || elements < apart || elements % apart != 0 || start < 0 || start > apart - width)
    return std::string(name) + " has " + std::to_string(elements) + " elements; expected pages of " + std::to_string(apart);
  std::vector<int64_t> sizes(layout.batch.begin(), layout.batch.end());
  sizes.push_back(layout.page[0]);
  return unreadable(name, apart - start - (width - 1), sizes, strides);
}

// The table of pages, and what is held, which follow masks.
inline std::string take_pages(Call& call, const Array& key, const Array& value, xla::ffi::RemainingArgs rest, size_t place) {
  const Layout& layout = call.layout;
  const Sizes& of = call.sizes;
  std::vector<int64_t> sizes(layout.batch.begin(), layout.batch.end());
  if (layout.page.size() != 3 || layout.page[0] < 1) return "the page has no three sizes";
  for (auto words : {complaint_of_pages("key", key.element_count(), layout, layout.page[1], of.width, layout.key, layout.starts[1]),
                     complaint_of_pages("value", value.element_count(), layout, layout.page[2], of.depth, layout.value, layout.starts[2])})
    if (!words.empty()) return words;
  auto table = rest.get<xla::ffi::Buffer<xla::ffi::S32>>(place);
  if (!table) return "the table is not of 32-bit integers";
  const int64_t many = table->element_count(), needed = divided_up(of.keys, layout.page[0]);
  if (many < needed) return "the table has " + std::to_string(many) + " pages; expected " + std::to_string(needed);
  if (auto words = unreadable("the table", many - (needed - 1), sizes, layout.table); !words.empty()) return words;
  call.pages = {table->typed_data(), layout.page[0],
                std::min<int64_t>(key.element_count() / layout.page[1], value.element_count() / layout.page[2]), layout.page[1], layout.page[2]};
  if (layout.held.size() == 0) return "";
  auto held = rest.get<xla::ffi::Buffer<xla::ffi::PRED>>(place + 1);
  if (!held) return "what is held is not of booleans";
  sizes.push_back(of.keys);
  call.pages.held = held->typed_data(), call.pages.held_right = layout.held[layout.held.size() - 1];
  return unreadable("what is held", held->element_count(), sizes, layout.held);
}

// The operands that all calls have, and the masks that may follow others; or what is wrong with them.
inline xla::ffi::Error take(Call& call, const Array& query, const Array& key, const Array& value, xla::ffi::RemainingArgs masks) {
  const Layout& layout = call.layout;
  if (auto words = complaint(layout); !words.empty()) return refused(words);
  const Sizes& of = call.sizes = layout.size();
  const bool has_pages = layout.page.size() > 0;
  if (auto words = complaint("query", query.element_count(), layout, {of.groups, of.queries}, of.width, layout.query, layout.starts[0]);
      !words.empty())
    return refused(words);
  if (!has_pages)
    for (auto words : {complaint("key", key.element_count(), layout, {of.keys}, of.width, layout.key, layout.starts[1]),
                       complaint("value", value.element_count(), layout, {of.keys}, of.depth, layout.value, layout.starts[2])})
      if (!words.empty()) return refused(words);
  const size_t own = (layout.mask.size() > 0) + (layout.bias.size() > 0);
  const size_t expected = own + (has_pages ? 1 + (layout.held.size() > 0) : 0);
  if (masks.size() != expected)
    return refused("there are " + std::to_string(masks.size()) + " masks; expected " + std::to_string(expected));
  std::vector<int64_t> sizes(layout.batch.begin(), layout.batch.end());
  sizes.insert(sizes.end(), {of.groups, of.queries, of.keys});
  std::string words;
  if (layout.mask.size()) {
    auto found = masks.get<xla::ffi::Buffer<xla::ffi::PRED>>(0);
    if (!found) return found.error();
    words = unreadable("the mask", found->element_count(), sizes, layout.mask);
    call.mask = found->typed_data();
  }
  if (layout.bias.size() && words.empty()) {
    auto found = masks.get<Array>(layout.mask.size() > 0);
    if (!found) return found.error();
    words = unreadable("what is added to scores", found->element_count(), sizes, layout.bias);
    call.bias = found->typed_data();
  }
  if (has_pages && words.empty()) words = take_pages(call, key, value, masks, own);
  call.query = query.typed_data() + layout.starts[0];
  call.key = key.typed_data() + layout.starts[1];
  call.value = value.typed_data() + layout.starts[2];
  return words.empty() ? xla::ffi::Error::Success() : refused(words);
}

inline std::string complaint(const Call& call, int64_t result, int64_t normalisers) {
  const Sizes& of = call.sizes;
  auto words = complaint("the result", result, call.layout, {of.groups, of.queries}, of.depth, call.layout.result);
  if (words.empty() && normalisers != 2 * call.layout.sets() * of.groups * of.queries)
    words = "there are " + std::to_string(normalisers) + " normalisers; expected two of each query";
  return words;
}

}  // namespace pcp

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(
    pcp::Layout, StructMember<pcp::Numbers>("batch"), StructMember<pcp::Numbers>("sizes"), StructMember<pcp::Numbers>("starts"),
    StructMember<pcp::Numbers>("query"), StructMember<pcp::Numbers>("key"), StructMember<pcp::Numbers>("value"),
    StructMember<pcp::Numbers>("result"), StructMember<pcp::Numbers>("for_query"), StructMember<pcp::Numbers>("for_key"),
    StructMember<pcp::Numbers>("for_value"),
    StructMember<pcp::Numbers>("mask"), StructMember<pcp::Numbers>("bias"), StructMember<pcp::Numbers>("table"),
    StructMember<pcp::Numbers>("page"), StructMember<pcp::Numbers>("held"), StructMember<float>("scale"),
    StructMember<float>("fill"), StructMember<int64_t>("causal"), StructMember<int64_t>("skips"), StructMember<int64_t>("offset"),
    StructMember<int64_t>("window"));
