// How attention's operands lie, as attributes say it, and what is wrong with them.
#pragma once

#include <cstring>
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

// Keys or values that are kept in fewer bits: where the first of them lies, and, of bytes, a scale for each `width` of them. Lines count
// elements from that place on as if they were float32.
struct Narrow {
  const float* base = nullptr;  // no float32: what bytes or bfloat16 lie there
  const float* scales = nullptr;

  Lines<const float> widened(Lines<const float> lines, int64_t first, int64_t last, int64_t width, float* room) const {
    if (!base) return lines;
    for (int64_t row = first; row < last; ++row) {
      const int64_t at = lines[row] - base;
      float* to = room + (row - first) * width;
      if (scales) {
        const int8_t* from = reinterpret_cast<const int8_t*>(base) + at;
        __builtin_prefetch(from + kAheadRows * lines.apart);
        const float scale = scales[at / width];
        for (int64_t i = 0; i < width; ++i) to[i] = static_cast<float>(from[i]) * scale;
      } else {
        const uint16_t* from = reinterpret_cast<const uint16_t*>(base) + at;
        __builtin_prefetch(from + kAheadRows * lines.apart);
        for (int64_t i = 0; i < width; ++i) {
          const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
          std::memcpy(to + i, &bits, sizeof bits);
        }
      }
    }
    return {room - first * width, width};
  }

  static constexpr int64_t kAheadRows = 8;
};

// Where keys and values lie that are in pages, which a table gives to a set of keys in the order of its rows; without a table the rows
// follow each other.
struct Pages {
  const int32_t* table = nullptr;
  int64_t rows = 0, count = 0, key = 0, value = 0;  // rows of a page; pages; elements from one to the next, of keys and of values
  const bool* held = nullptr;                       // whether a value is what its page says; if not, it is 0
  int64_t held_right = 0;
  Narrow of_keys = {}, of_values = {};

  bool holds(int64_t row) const { return !held || held[row * held_right]; }
  // The end of those of the rows up to `last` that are in the page of one of them.
  int64_t end(int64_t row, int64_t last) const { return table ? std::min(last, (row / rows + 1) * rows) : last; }
  // Lines whose rows from one on to the end of its page are where the page is.
  Lines<const float> of(Lines<const float> lines, int64_t apart, int64_t row) const {
    if (!table) return lines;
    const int64_t place = row / rows, page = std::clamp<int64_t>(table[place], 0, count - 1);
    return {lines.at + (page * apart - place * rows * lines.apart), lines.apart};
  }
  // The same of rows [first, last), of one page, of `width` numbers each. What is kept in fewer bits is widened to `room`, where there is
  // room for so many.
  Lines<const float> keys(Lines<const float> lines, int64_t first, int64_t last, int64_t width, float* room) const {
    return of_keys.widened(of(lines, key, first), first, last, width, room);
  }
  Lines<const float> values(Lines<const float> lines, int64_t first, int64_t last, int64_t width, float* room) const {
    return of_values.widened(of(lines, value, first), first, last, width, room);
  }
  bool is_narrow() const { return of_keys.base || of_values.base; }
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

// How keys or values are kept; of bytes, the scales are the array at `place`, which is counted on.
template <typename Stored>
std::string take_narrow(Narrow& to, const Stored& array, Numbers strides, int64_t start, int64_t width, xla::ffi::RemainingArgs rest,
                        size_t& place) {
  if (array.element_type() == xla::ffi::F32) return "";
  to.base = static_cast<const float*>(array.untyped_data());
  if (array.element_type() == xla::ffi::BF16) return "";
  if (array.element_type() != xla::ffi::S8) return "keys and values are kept in float32, bfloat16 or bytes";
  auto scales = rest.get<Array>(place++);
  if (!scales) return "scales of bytes are not of float32";
  const int64_t count = scales->element_count(), elements = array.element_count();
  bool is_whole = count * width == elements && start % width == 0;
  for (int64_t stride : strides) is_whole &= stride % width == 0;
  to.scales = scales->typed_data();
  return is_whole ? "" : "there are " + std::to_string(count) + " scales; expected one for each " + std::to_string(width) + " of " +
                             std::to_string(elements) + " bytes";
}

// The table of pages, what is held, and scales of bytes, which follow masks.
template <typename Stored>
std::string take_pages(Call& call, const Stored& key, const Stored& value, xla::ffi::RemainingArgs rest, size_t place) {
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
  size_t next = place + 1 + (layout.held.size() > 0);
  if (auto words = take_narrow(call.pages.of_keys, key, layout.key, layout.starts[1], of.width, rest, next); !words.empty()) return words;
  if (auto words = take_narrow(call.pages.of_values, value, layout.value, layout.starts[2], of.depth, rest, next); !words.empty())
    return words;
  if (layout.held.size() == 0) return "";
  auto held = rest.get<xla::ffi::Buffer<xla::ffi::PRED>>(place + 1);
  if (!held) return "what is held is not of booleans";
  sizes.push_back(of.keys);
  call.pages.held = held->typed_data(), call.pages.held_right = layout.held[layout.held.size() - 1];
  return unreadable("what is held", held->element_count(), sizes, layout.held);
}

// The operands that all calls have, and the masks that may follow others; or what is wrong with them.
template <typename Stored>
xla::ffi::Error take(Call& call, const Array& query, const Stored& key, const Stored& value, xla::ffi::RemainingArgs masks) {
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
  const size_t narrow = (key.element_type() == xla::ffi::S8) + (value.element_type() == xla::ffi::S8);
  const size_t expected = own + (has_pages ? 1 + (layout.held.size() > 0) + narrow : 0);
  if (!has_pages && !(key.element_type() == xla::ffi::F32 && value.element_type() == xla::ffi::F32))
    return refused("keys and values that are in no pages are of float32");
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
  call.key = static_cast<const float*>(key.untyped_data()) + layout.starts[1];
  call.value = static_cast<const float*>(value.untyped_data()) + layout.starts[2];
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
