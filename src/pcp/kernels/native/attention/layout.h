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
// array: of the batch, of groups where it has them, of rows.
struct Layout {
  Numbers batch, sizes, starts, query, key, value, result, for_query, for_key, for_value, mask, bias;
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

// The operands that all calls have, and the masks that may follow others; or what is wrong with them.
inline xla::ffi::Error take(Call& call, const Array& query, const Array& key, const Array& value, xla::ffi::RemainingArgs masks) {
  const Layout& layout = call.layout;
  if (auto words = complaint(layout); !words.empty()) return refused(words);
  const Sizes& of = call.sizes = layout.size();
  for (auto words : {complaint("query", query.element_count(), layout, {of.groups, of.queries}, of.width, layout.query, layout.starts[0]),
                     complaint("key", key.element_count(), layout, {of.keys}, of.width, layout.key, layout.starts[1]),
                     complaint("value", value.element_count(), layout, {of.keys}, of.depth, layout.value, layout.starts[2])})
    if (!words.empty()) return refused(words);
  const size_t expected = (layout.mask.size() > 0) + (layout.bias.size() > 0);
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
    StructMember<pcp::Numbers>("mask"), StructMember<pcp::Numbers>("bias"), StructMember<float>("scale"),
    StructMember<float>("fill"), StructMember<int64_t>("causal"), StructMember<int64_t>("skips"), StructMember<int64_t>("offset"),
    StructMember<int64_t>("window"));
