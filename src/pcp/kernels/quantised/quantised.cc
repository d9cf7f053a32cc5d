// Products of a few float32 rows with weights stored in bfloat16, int8 or int4: weights are read once, in order, and become float32
// in registers.
//
// Handlers are called by whatever program names them, so they look at every shape before they touch memory.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "../native/arrays.h"
#include "../native/rows.h"

namespace ffi = xla::ffi;

namespace pcp {
namespace {

constexpr int64_t kBlock = 32;         // weights of int4 that share a scale
constexpr int64_t kTogether = 4;       // outputs that are summed at once, so that no sum waits for itself
constexpr int64_t kGrain = 128 << 10;  // bytes of weights in a part of the work: about ten microseconds

typedef int32_t Wide __attribute__((vector_size(kLanes * sizeof(int32_t))));

ffi::Error refused(const std::string& words) { return refused_by("quantised product", words); }

// Sixteen words in memory, each as an int32. GCC makes one instruction of the loop for bytes, and sixteen of
// __builtin_convertvector; for words of two bytes it is the latter that becomes one.
inline Wide wide(const uint16_t* at) {
  typedef uint16_t Words __attribute__((vector_size(kLanes * sizeof(uint16_t))));
  Words found;
  std::memcpy(&found, at, sizeof found);
  return __builtin_convertvector(found, Wide);
}

template <typename Byte>
inline Wide wide(const Byte* at) {
  int32_t numbers[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) numbers[i] = at[i];
  Wide found;
  std::memcpy(&found, numbers, sizeof found);
  return found;
}

// Asks for weights that are read soon. Several rows are read at once, and no processor sees that they follow one another: from memory
// they came at half its rate.
template <typename Word>
inline void ask_ahead(const Word* at, int64_t place) {
  constexpr int64_t kLine = 64 / sizeof(Word);
  if (place % kLine == 0) __builtin_prefetch(at);
}

// The sums of x times `count` rows of weights, which lie one after another.
template <typename Form, int64_t count>
inline void sums_of_words(const float* x, const typename Form::Word* weights, int64_t inner, float* to) {
  Lanes total[count] = {};
  const int64_t whole = inner / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Lanes of_x = load(x + i);
    for (int64_t row = 0; row < count; ++row) {
      const auto* here = weights + row * inner + i;
      ask_ahead(here + count * inner, i);
      total[row] += of_x * Form::lanes(wide(here));
    }
  }
  if (const int64_t rest = inner - whole) {
    const Lanes of_x = load_part(x + whole, rest);
    for (int64_t row = 0; row < count; ++row) {
      typename Form::Word words[kLanes] = {};
      std::memcpy(words, weights + row * inner + whole, rest * sizeof(typename Form::Word));
      total[row] += of_x * Form::lanes(wide(words));
    }
  }
  for (int64_t row = 0; row < count; ++row) to[row] = sum(total[row]);
}

// How weights are stored: what divides the length of a row, the words and scales of one, and the sums of x times `count` rows.
struct BFloat16 {
  using Word = uint16_t;
  static constexpr int64_t kTimes = 1;
  static int64_t words(int64_t inner) { return inner; }
  static int64_t scales(int64_t) { return 0; }
  static inline Lanes lanes(Wide bits) {
    bits <<= 16;
    Lanes found;
    std::memcpy(&found, &bits, sizeof found);
    return found;
  }
  template <int64_t count>
  static void sums(const float* x, const Word* weights, const float*, int64_t inner, float* to) {
    sums_of_words<BFloat16, count>(x, weights, inner, to);
  }
};

struct Int8 {
  using Word = int8_t;
  static constexpr int64_t kTimes = 1;
  static int64_t words(int64_t inner) { return inner; }
  static int64_t scales(int64_t) { return 1; }
  static inline Lanes lanes(Wide numbers) { return __builtin_convertvector(numbers, Lanes); }
  template <int64_t count>
  static void sums(const float* x, const Word* weights, const float* scales, int64_t inner, float* to) {
    sums_of_words<Int8, count>(x, weights, inner, to);
    for (int64_t row = 0; row < count; ++row) to[row] *= scales[row];
  }
};

// A block is sixteen bytes: their lower halves are its first sixteen weights, their upper halves the others, all 8 too large.
struct Int4 {
  using Word = uint8_t;
  static constexpr int64_t kTimes = kBlock;
  static int64_t words(int64_t inner) { return inner / 2; }
  static int64_t scales(int64_t inner) { return inner / kBlock; }
  template <int64_t count>
  static void sums(const float* x, const Word* weights, const float* scales, int64_t inner, float* to) {
    Lanes total[count] = {};
    const int64_t blocks = inner / kBlock;
    for (int64_t block = 0; block < blocks; ++block) {
      const Lanes first = load(x + block * kBlock), second = load(x + block * kBlock + kLanes);
      for (int64_t row = 0; row < count; ++row) {
        const Word* here = weights + (row * blocks + block) * kLanes;
        ask_ahead(here + count * blocks * kLanes, block * kLanes);
        const Wide both = wide(here);
        const Lanes made =
            first * __builtin_convertvector((both & 15) - 8, Lanes) + second * __builtin_convertvector((both >> 4) - 8, Lanes);
        total[row] += made * scales[row * blocks + block];
      }
    }
    for (int64_t row = 0; row < count; ++row) to[row] = sum(total[row]);
  }
};

// x is [rows,inner], the weights have a row of words for each output, and scales, if there are any, a row of numbers.
template <typename Form, typename Weights>
ffi::Error multiply(ffi::ThreadPool& pool, const Array& x, const Weights& weights, const Array* scales, Result& y) {
  const auto of_x = x.dimensions(), of_weights = weights.dimensions();
  if (of_x.size() != 2) return refused("x has shape " + shape_of(x) + "; expected [rows,inputs]");
  const int64_t rows = of_x[0], inner = of_x[1], words = Form::words(inner), numbers = Form::scales(inner);
  if (inner % Form::kTimes)
    return refused("there are " + std::to_string(inner) + " inputs; expected a multiple of " + std::to_string(Form::kTimes));
  if (of_weights.size() != 2 || of_weights[1] != words)
    return refused("a row of weights has " + std::to_string(of_weights.size() == 2 ? of_weights[1] : 0) + " elements; expected " +
                   std::to_string(words));
  const int64_t outputs = of_weights[0];
  if (scales && static_cast<int64_t>(scales->element_count()) != outputs * numbers)
    return refused("there are " + std::to_string(scales->element_count()) + " scales; expected " + std::to_string(outputs * numbers));
  if (!is_shape(*y, {rows, outputs}))
    return refused("the result has shape " + shape_of(*y) + "; expected [" + std::to_string(rows) + "," + std::to_string(outputs) +
                   "]");
  using Word = typename Form::Word;
  const auto* from = static_cast<const Word*>(weights.untyped_data());
  const float *of_scales = scales ? scales->typed_data() : nullptr, *left = x.typed_data();
  float* to = y->typed_data();
  const int64_t bytes = std::max<int64_t>(1, words * static_cast<int64_t>(sizeof(Word)));
  const int64_t grain = std::max(kTogether, kGrain / bytes / kTogether * kTogether);
  parallel_for(pool, rows ? outputs : 0, grain, [&](int64_t first, int64_t last) {
    int64_t output = first;
    for (; output + kTogether <= last; output += kTogether)
      for (int64_t row = 0; row < rows; ++row)
        Form::template sums<kTogether>(left + row * inner, from + output * words, of_scales + output * numbers, inner,
                                       to + row * outputs + output);
    for (; output < last; ++output)
      for (int64_t row = 0; row < rows; ++row)
        Form::template sums<1>(left + row * inner, from + output * words, of_scales + output * numbers, inner,
                               to + row * outputs + output);
  });
  return ffi::Error::Success();
}

ffi::Error by_bf16(ffi::ThreadPool pool, Array x, ffi::Buffer<ffi::BF16> weights, Result y) {
  return multiply<BFloat16>(pool, x, weights, nullptr, y);
}

ffi::Error by_int8(ffi::ThreadPool pool, Array x, ffi::Buffer<ffi::S8> weights, Array scales, Result y) {
  return multiply<Int8>(pool, x, weights, &scales, y);
}

ffi::Error by_int4(ffi::ThreadPool pool, Array x, ffi::Buffer<ffi::U8> weights, Array scales, Result y) {
  return multiply<Int4>(pool, x, weights, &scales, y);
}

}  // namespace
}  // namespace pcp

#define PCP_BIND(type) ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<pcp::Array>().Arg<ffi::Buffer<ffi::type>>()

XLA_FFI_DEFINE_HANDLER_SYMBOL(pcp_quantised_bf16, pcp::by_bf16, PCP_BIND(BF16).Ret<pcp::Array>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(pcp_quantised_int8, pcp::by_int8, PCP_BIND(S8).Arg<pcp::Array>().Ret<pcp::Array>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(pcp_quantised_int4, pcp::by_int4, PCP_BIND(U8).Arg<pcp::Array>().Ret<pcp::Array>());
