// Products of float32 rows with weights stored in bfloat16, int8 or int4. Of a few rows weights are read once, in order, and become
// float32 in registers; of many they become panels.
//
// Handlers are called by whatever program names them, so they look at every shape before they touch memory.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "../native/arrays.h"
#include "../native/panels/tiles.h"
#include "../native/rows.h"
#include "blocks.h"
#include "stored.h"

namespace ffi = xla::ffi;

namespace pcp {
namespace {

constexpr int64_t kGrain = 128 << 10;  // bytes of weights in a part of the work: about ten microseconds

ffi::Error refused(const std::string& words) { return refused_by("quantised product", words); }

ffi::Error no_memory() {
  return ffi::Error(ffi::ErrorCode::kResourceExhausted, "pcp quantised product: there is no memory for copies of the operands");
}

// Weights are read row by row, each once and in order, which is what processors look ahead for: four rows at once came from memory at
// half the rate. Further ahead than they look, lines are asked for.
constexpr int64_t kAhead = 4096;  // bytes
constexpr int64_t kChains = 4;    // sums of a row at once, so that none waits for itself

template <typename Word>
inline void ask_ahead(const Word* at, int64_t words) {
  constexpr int64_t kLine = 64;
  for (int64_t byte = 0; byte < words * static_cast<int64_t>(sizeof(Word)); byte += kLine)
    __builtin_prefetch(reinterpret_cast<const char*>(at) + kAhead + byte);
}

inline float sum_of(const Lanes (&chains)[kChains]) { return sum((chains[0] + chains[1]) + (chains[2] + chains[3])); }

// Rows of x that meet a row of weights together, so that it becomes float32 once. Each is added up in the same order as alone.
#if defined(__AVX512F__)
constexpr int kTogether = 4;
#else
constexpr int kTogether = 1;  // there are not registers enough
#endif

// The sums of kCount rows of x times a row of weights.
template <typename Form, int kCount>
inline void sums_of_words(const float* x, const typename Form::Word* weights, const float* scales, int64_t inner, float* to) {
  Lanes chains[kCount][kChains] = {};
  const auto add = [&](int64_t chain, int64_t i, Lanes of_weights) {
#pragma GCC unroll 4
    for (int row = 0; row < kCount; ++row) chains[row][chain] += load(x + row * inner + i) * of_weights;
  };
  int64_t i = 0;
  for (; i + kChains * kLanes <= inner; i += kChains * kLanes) {
    ask_ahead(weights + i, kChains * kLanes);
#pragma GCC unroll 4
    for (int64_t chain = 0; chain < kChains; ++chain)
      add(chain, i + chain * kLanes, scaled<Form>(Form::lanes(wide(weights + i + chain * kLanes)), scales, i + chain * kLanes));
  }
  for (; i + kLanes <= inner; i += kLanes) add(0, i, scaled<Form>(Form::lanes(wide(weights + i)), scales, i));
  if (const int64_t rest = inner - i) {
    typename Form::Word words[kLanes] = {};
    std::memcpy(words, weights + i, rest * sizeof(typename Form::Word));
    for (int row = 0; row < kCount; ++row) chains[row][1] += load_part(x + row * inner + i, rest) * Form::lanes(wide(words));
  }
  for (int row = 0; row < kCount; ++row) to[row] = sum_of(chains[row]);
}

// The same of blocks of weights in int4.
inline float sum_of_blocks(const float* x, const Int4::Word* weights, const float* scales, int64_t inner) {
  Lanes chains[kChains] = {};
  const auto add = [&](Lanes& chain, int64_t block) {
    const Lanes first = load(x + block * kBlock), second = load(x + block * kBlock + kLanes);
    const Wide both = wide(weights + block * kLanes);
    chain += (first * Int4::first(both) + second * Int4::second(both)) * scales[block];
  };
  const int64_t blocks = inner / kBlock;
  int64_t block = 0;
  for (; block + kChains <= blocks; block += kChains) {
    ask_ahead(weights + block * kLanes, kChains * kLanes);
    ask_ahead(scales + block, kChains);
#pragma GCC unroll 4
    for (int64_t chain = 0; chain < kChains; ++chain) add(chains[chain], block + chain);
  }
  for (; block < blocks; ++block) add(chains[0], block);
  return sum_of(chains);
}

// The same of weights in any form, with their scales.
template <typename Form, int kCount>
inline void sums_of_weights(const float* x, const typename Form::Word* weights, const float* scales, int64_t inner, float* to) {
  if constexpr (std::is_same_v<Form, Int4>)
    for (int row = 0; row < kCount; ++row) to[row] = sum_of_blocks(x + row * inner, weights, scales, inner);
  else
    sums_of_words<Form, kCount>(x, weights, scales, inner, to);
  for (int row = 0; row < kCount && Form::kScaled; ++row) to[row] *= *scales;
}

// What is wrong with shapes; empty if nothing is. x is [rows,inner], the weights have a row of words for each output, and scales, if there
// are any, a row of numbers.
template <typename Form, typename Weights>
std::string complaint(const Array& x, const Weights& weights, const Array* scales, const Array& y) {
  const auto of_x = x.dimensions(), of_weights = weights.dimensions();
  if (of_x.size() != 2) return "x has shape " + shape_of(x) + "; expected [rows,inputs]";
  const int64_t rows = of_x[0], inner = of_x[1], words = Form::words(inner), numbers = Form::scales(inner);
  if (inner % Form::kTimes)
    return "there are " + std::to_string(inner) + " inputs; expected a multiple of " + std::to_string(Form::kTimes);
  if (of_weights.size() != 2 || of_weights[1] != words)
    return "a row of weights has " + std::to_string(of_weights.size() == 2 ? of_weights[1] : 0) + " elements; expected " +
           std::to_string(words);
  const int64_t outputs = of_weights[0];
  if (scales && static_cast<int64_t>(scales->element_count()) != outputs * numbers)
    return "there are " + std::to_string(scales->element_count()) + " scales; expected " + std::to_string(outputs * numbers);
  if (!is_shape(y, {rows, outputs}))
    return "the result has shape " + shape_of(y) + "; expected [" + std::to_string(rows) + "," + std::to_string(outputs) + "]";
  return "";
}

// Calls `sums(row, output, count, found)`, which finds the sums of `count` rows from one on, for all rows and outputs, so that weights are
// read once, in order. The count is a constant of its type.
template <typename Sums>
void for_outputs(ffi::ThreadPool& pool, int64_t rows, int64_t outputs, int64_t bytes, float* to, const Sums& sums) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, bytes));
  parallel_for(pool, rows ? outputs : 0, grain, [&](int64_t first, int64_t last) {
    for (int64_t output = first; output < last; ++output) {
      const auto by = [&](int64_t row, auto count) {
        float found[count];
        sums(row, output, count, found);
        for (int i = 0; i < count; ++i) to[(row + i) * outputs + output] = found[i];
      };
      int64_t row = 0;
      for (; row + kTogether <= rows; row += kTogether) by(row, std::integral_constant<int, kTogether>{});
      for (; row < rows; ++row) by(row, std::integral_constant<int, 1>{});
    }
  });
}

template <typename Form, typename Weights>
ffi::Error multiply(ffi::ThreadPool& pool, const Array& x, const Weights& weights, const Array* scales, Result& y) {
  if (auto words = complaint<Form>(x, weights, scales, *y); !words.empty()) return refused(words);
  const int64_t rows = x.dimensions()[0], inner = x.dimensions()[1], outputs = weights.dimensions()[0];
  const int64_t words = Form::words(inner), numbers = Form::scales(inner);
  using Word = typename Form::Word;
  const auto* from = static_cast<const Word*>(weights.untyped_data());
  const float *of_scales = scales ? scales->typed_data() : nullptr, *left = x.typed_data();
  for_outputs(pool, rows, outputs, words * static_cast<int64_t>(sizeof(Word)), y->typed_data(),
              [&](int64_t row, int64_t output, auto count, float* found) {
                sums_of_weights<Form, count>(left + row * inner, from + output * words, of_scales + output * numbers, inner, found);
              });
  return ffi::Error::Success();
}

// Weights of int4 times rows that are rounded to digits: those of which rows cannot be as exact so become float32.
template <bool kFast, int kDigits>
ffi::Error multiply_blocks(ffi::ThreadPool& pool, const Array& x, const ffi::Buffer<ffi::U8>& weights, const Array& scales, Result& y) {
  if (auto words = complaint<Int4>(x, weights, &scales, *y); !words.empty()) return refused(words);
  const int64_t rows = x.dimensions()[0], inner = x.dimensions()[1], outputs = weights.dimensions()[0];
  const int64_t groups = divided_up(inner, kBlocks * kBlock);
  Scratch scratch(std::max<int64_t>(1, rows * groups) * sizeof(RoundedBlocks<kDigits>));
  auto* rounded = scratch.as<RoundedBlocks<kDigits>>();
  if (!rounded) return no_memory();
  for (int64_t row = 0; row < rows; ++row)
    if (!round_blocks(x.typed_data() + row * inner, inner, rounded + row * groups)) return multiply<Int4>(pool, x, weights, &scales, y);
  const uint8_t* from = weights.typed_data();
  const float* of_scales = scales.typed_data();
  for_outputs(pool, rows, outputs, inner / 2, y->typed_data(), [&](int64_t row, int64_t output, auto count, float* found) {
    sums_by_blocks<kFast, count>(rounded + row * groups, groups, from + output * inner / 2, of_scales + output * (inner / kBlock), inner,
                                 found);
  });
  return ffi::Error::Success();
}

// Weights of int8 times rows that are rounded to bytes.
template <bool kFast>
ffi::Error multiply_bytes(ffi::ThreadPool& pool, const Array& x, const ffi::Buffer<ffi::S8>& weights, const Array& scales, Result& y) {
  if (auto words = complaint<Int8>(x, weights, &scales, *y); !words.empty()) return refused(words);
  const int64_t rows = x.dimensions()[0], inner = x.dimensions()[1], outputs = weights.dimensions()[0], parts = divided_up(inner, kBytes);
  Scratch scratch(std::max<int64_t>(1, rows * parts) * sizeof(RoundedBytes));
  auto* rounded = scratch.as<RoundedBytes>();
  if (!rounded) return no_memory();
  for (int64_t row = 0; row < rows; ++row) round_bytes(x.typed_data() + row * inner, inner, rounded + row * parts);
  const int8_t* from = weights.typed_data();
  const float* of_scales = scales.typed_data();
  for_outputs(pool, rows, outputs, inner, y->typed_data(), [&](int64_t row, int64_t output, auto count, float* found) {
    for (int i = 0; i < count; ++i)
      found[i] = sum_by_bytes<kFast>(rounded + (row + i) * parts, from + output * inner, inner) * of_scales[output];
  });
  return ffi::Error::Success();
}

// The same of many rows, by panels.
template <typename Panels, typename Form>
ffi::Error multiply_many(ffi::ThreadPool& pool, const Array& x, const ffi::AnyBuffer& weights, const ffi::RemainingArgs& more,
                         Result& y) {
  constexpr bool kHasScales = !std::is_same_v<Form, BFloat16>;
  if (more.size() != kHasScales)
    return refused("there are " + std::to_string(more.size()) + " arrays of scales; expected " + std::to_string(kHasScales));
  Array scales = x;
  if (kHasScales) {
    auto found = more.get<Array>(0);
    if (!found) return found.error();
    scales = *found;
  }
  if (auto words = complaint<Form>(x, weights, kHasScales ? &scales : nullptr, *y); !words.empty()) return refused(words);
  const int64_t rows = x.dimensions()[0], inner = x.dimensions()[1], outputs = weights.dimensions()[0];
  if (!rows || !outputs) return ffi::Error::Success();
  if (!inner) return refused("nothing is summed over");
  const float* of_scales = kHasScales ? scales.typed_data() : nullptr;
  Epilogue epilogue;
  if (Form::kScaled && Panels::kNumbers < 4) epilogue.scale = of_scales;  // panels of bytes have scales of their own
  ask_for_huge_pages_of(y);
  const ProductWith<Stored<typename Panels::Word>> product{
      {x.typed_data(), inner, 1}, {copy_stored<Panels, Form>, weights.untyped_data(), of_scales, inner}, y->typed_data(), rows, outputs,
      inner, epilogue};
  return multiply_panels<Panels>(product, Workers{&pool}) ? ffi::Error::Success() : no_memory();
}

// Calls `made` with the form of weights in bytes: with a scale for a row, or for 32 or 16 of its numbers.
template <typename Weights, typename Made>
ffi::Error by_scales(const Array& x, const Weights& weights, int64_t scales, const Made& made) {
  const int64_t outputs = weights.dimensions().size() ? weights.dimensions()[0] : 0;
  const int64_t inner = x.dimensions().size() ? x.dimensions().back() : 0;
  if (scales != outputs && scales * 32 == outputs * inner) return made(Int8By<32>{});
  if (scales != outputs && scales * 16 == outputs * inner) return made(Int8By<16>{});
  return made(Int8{});
}

int64_t count_of(const ffi::RemainingArgs& scales) {
  const auto found = scales.get<ffi::AnyBuffer>(0);
  return found ? static_cast<int64_t>(found->element_count()) : 0;
}

template <typename Panels>
ffi::Error many(ffi::ThreadPool pool, Array x, ffi::AnyBuffer weights, ffi::RemainingArgs scales, Result y) {
  switch (weights.element_type()) {
    case ffi::BF16:
      return multiply_many<Panels, BFloat16>(pool, x, weights, scales, y);
    case ffi::S8:
      return by_scales(x, weights, count_of(scales), [&](auto form) { return multiply_many<Panels, decltype(form)>(pool, x, weights, scales, y); });
    case ffi::U8:
      return multiply_many<Panels, Int4>(pool, x, weights, scales, y);
    default:
      return refused("weights are stored neither in bfloat16 nor in bytes");
  }
}

ffi::Error many_by_pairs(ffi::ThreadPool pool, Array x, ffi::AnyBuffer weights, ffi::RemainingArgs scales, Result y) {
  return by_panels<Pairs>([&](auto panels) { return many<decltype(panels)>(pool, x, weights, scales, y); });
}

ffi::Error many_by_bytes(ffi::ThreadPool pool, Array x, ffi::AnyBuffer weights, ffi::RemainingArgs scales, Result y) {
  return (has_byte_products() ? many<Bytes<true>> : many<Bytes<false>>)(pool, x, weights, scales, y);
}

ffi::Error by_bf16(ffi::ThreadPool pool, Array x, ffi::Buffer<ffi::BF16> weights, Result y) {
  return multiply<BFloat16>(pool, x, weights, nullptr, y);
}

ffi::Error by_int8(ffi::ThreadPool pool, Array x, ffi::Buffer<ffi::S8> weights, Array scales, Result y) {
  return by_scales(x, weights, scales.element_count(), [&](auto form) { return multiply<decltype(form)>(pool, x, weights, &scales, y); });
}

ffi::Error by_int4(ffi::ThreadPool pool, Array x, ffi::Buffer<ffi::U8> weights, Array scales, Result y) {
  if (has_byte_products()) return multiply_blocks<true, kExact>(pool, x, weights, scales, y);
  return multiply<Int4>(pool, x, weights, &scales, y);
}

ffi::Error by_int4_and_bytes(ffi::ThreadPool pool, Array x, ffi::Buffer<ffi::U8> weights, Array scales, Result y) {
  return (has_byte_products() ? multiply_blocks<true, 1> : multiply_blocks<false, 1>)(pool, x, weights, scales, y);
}

ffi::Error by_int8_and_bytes(ffi::ThreadPool pool, Array x, ffi::Buffer<ffi::S8> weights, Array scales, Result y) {
  return (has_byte_products() ? multiply_bytes<true> : multiply_bytes<false>)(pool, x, weights, scales, y);
}

}  // namespace
}  // namespace pcp

PCP_HANDLER(pcp_quantised_bf16, pcp::by_bf16);
PCP_HANDLER(pcp_quantised_int8, pcp::by_int8);
PCP_HANDLER(pcp_quantised_int8_int8, pcp::by_int8_and_bytes);
PCP_HANDLER(pcp_quantised_int4, pcp::by_int4);
PCP_HANDLER(pcp_quantised_int4_int8, pcp::by_int4_and_bytes);
PCP_HANDLER(pcp_quantised_many_f32, pcp::many<pcp::Vectors<pcp::Singles>>);
PCP_HANDLER(pcp_quantised_many_bf16, pcp::many_by_pairs);
PCP_HANDLER(pcp_quantised_many_int8, pcp::many_by_bytes);
