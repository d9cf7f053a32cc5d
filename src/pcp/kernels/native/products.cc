// Products of matrices of float32 or bfloat16. What converts or transposes an operand happens where it is copied into panels; of one row or
// one column only the vector is copied.
//
// Handlers are called by whatever program names them, so they look at every shape and attribute before they touch memory.

#include "arrays.h"
#include "panels/byte_blocks.h"
#include "panels/multiply.h"
#include "panels/tiles.h"
#include "rows.h"
#include "scratch.h"

#include <string>
#include <type_traits>
#include <vector>

namespace ffi = xla::ffi;

namespace pcp {

// Numbers of bfloat16, of which the first `count` are there, as lanes.
inline Lanes load_part(const Bf16* at, int64_t count) {
  typedef uint16_t Halves __attribute__((vector_size(kLanes * sizeof(uint16_t))));
  typedef uint32_t Bits __attribute__((vector_size(sizeof(Lanes))));
  Halves halves = {};
  std::memcpy(&halves, at, count * sizeof(uint16_t));
  const Bits bits = __builtin_convertvector(halves, Bits) << 16;
  Lanes found;
  std::memcpy(&found, &bits, sizeof found);
  return found;
}
inline Lanes load(const Bf16* at) { return load_part(at, kLanes); }

inline float number(float x) { return x; }
inline float number(Bf16 x) { return Pairs::number(static_cast<uint32_t>(x.bits) << 16); }

namespace {

ffi::Error refused(const std::string& words) {
  return refused_by("product", words);
}

constexpr int64_t kAcross = kRegister == 16 ? 16 : 2;   // lanes of the result of one row that are summed up at once
constexpr int64_t kAlone = int64_t{1} << 18;           // multiplications of a product that is not worth a second thread

// The form of numbers that are bytes with scales.
struct InBytes {};

template <typename Number>
using ProductOf = ProductWith<MatrixOf<Number>, MatrixOf<Number>>;

// A product of one row, in whose right operand the numbers of a row lie side by side: nothing is copied but the left operand.
// Each block of columns is summed up in registers, so every number of the right operand is read once, in order.
template <typename Form, typename Number>
bool multiply_row(const ProductOf<Number>& product, Workers workers) {
  Scratch kept(product.inner * static_cast<int64_t>(sizeof(float)));
  float* left = kept.as<float>();
  if (!left) return false;
  for (int64_t k = 0; k < product.inner; ++k) left[k] = Form::kept(number(product.left.at[k * product.left.right]));
  const MatrixOf<Number>& right = product.right;
  const int64_t blocks = divided_up(product.columns, kAcross * kLanes);
  workers.each(blocks, std::max<int64_t>(1, divided_up(blocks, workers.count())), [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t column = block * kAcross * kLanes, wide = std::min(kAcross * kLanes, product.columns - column);
      Lanes totals[kAcross] = {};
      for (int64_t begin = 0; begin < product.inner; begin += Form::kDeep) {
        const int64_t end = std::min(begin + Form::kDeep, product.inner);
        Lanes sums[kAcross] = {};
        const Number* at = right.at + begin * right.down + column;
        if (wide == kAcross * kLanes)
          for (int64_t k = begin; k < end; ++k, at += right.down)
#pragma GCC unroll 16
            for (int64_t i = 0; i < kAcross; ++i) sums[i] += left[k] * Form::kept(load(at + i * kLanes));
        else
          for (int64_t k = begin; k < end; ++k, at += right.down)
            for (int64_t i = 0; i * kLanes < wide; ++i)
              sums[i] += left[k] * Form::kept(load_part(at + i * kLanes, std::min(kLanes, wide - i * kLanes)));
        for (int64_t i = 0; i < kAcross; ++i) totals[i] += sums[i];
      }
      for (int64_t i = 0; i * kLanes < wide; ++i) {
        const int64_t here = column + i * kLanes, count = wide - i * kLanes;
        product.epilogue.finish(totals[i], product.result + here, here, here, count);
      }
    }
  });
  return true;
}

// A product of one row, in whose right operand the numbers of a column lie side by side.
template <typename Form, typename Number>
bool multiply_row_turned(const ProductOf<Number>& product, Workers workers) {
  Scratch kept(product.inner * static_cast<int64_t>(sizeof(float)));
  float* left = kept.as<float>();
  if (!left) return false;
  for (int64_t k = 0; k < product.inner; ++k) left[k] = Form::kept(number(product.left.at[k * product.left.right]));
  const int64_t whole = product.inner / kLanes * kLanes, rest = product.inner - whole;
  const int64_t grain = divided_up(product.columns, 4 * workers.count());
  workers.each(product.columns, grain, [&](int64_t first, int64_t last) {
    constexpr int64_t kTogether = 4;
    for (int64_t column = first; column < last; column += kTogether) {
      const int64_t count = std::min(kTogether, last - column);
      Lanes found = {};
      for (int64_t j = 0; j < count; ++j) {
        const Number* at = product.right.at + (column + j) * product.right.right;
        Lanes sums_of[kTogether] = {};
        int64_t k = 0;
        for (; k + kTogether * kLanes <= whole; k += kTogether * kLanes)
#pragma GCC unroll 4
          for (int64_t i = 0; i < kTogether; ++i)
            sums_of[i] += load(left + k + i * kLanes) * Form::kept(load(at + k + i * kLanes));
        for (; k < whole; k += kLanes) sums_of[0] += load(left + k) * Form::kept(load(at + k));
        if (rest) sums_of[1] += load_part(left + whole, rest) * Form::kept(load_part(at + whole, rest));
        found[j] = sum((sums_of[0] + sums_of[1]) + (sums_of[2] + sums_of[3]));
      }
      product.epilogue.finish(found, product.result + column, column, column, count);
    }
  });
  return true;
}

// The same, by whatever is fastest for its sizes here.
template <typename Form, typename Number>
bool multiply(const ProductOf<Number>& product, Workers workers) {
  if constexpr (std::is_same_v<Form, InBytes>) {
    const auto by = has_byte_products() ? multiply_panels<ByteBlocks<true>, Matrix, Matrix>
                                         : multiply_panels<ByteBlocks<false>, Matrix, Matrix>;
    return by(product, workers);
  } else {
    // Numbers of bfloat16 need not be rounded again.
    using OfRow = std::conditional_t<std::is_same_v<Number, float>, Form, Singles>;
    if (product.columns == 1 && product.rows > 1 && !product.epilogue.bias) {
      const MatrixOf<Number> row{product.right.at, 0, product.right.down};
      const MatrixOf<Number> turned{product.left.at, product.left.right, product.left.down};
      return multiply<Form, Number>({row, turned, product.result, 1, product.rows, product.inner, product.epilogue}, workers);
    }
    if (product.rows == 1 && product.right.right == 1) return multiply_row<OfRow>(product, workers);
    if (product.rows == 1 && product.right.down == 1) return multiply_row_turned<OfRow>(product, workers);
    return by_panels<Form>([&](auto panels) { return multiply_tall<decltype(panels)>(product, workers); });
  }
}

// The same with a right operand that lies in panels. Those of tiles are those of pairs.
template <typename Form, typename Number>
bool multiply_kept(const ProductOf<Number>& product, const void* right, Workers workers) {
  const auto by = [&](auto panels) {
    using Panels = decltype(panels);
    const Kept<Panels> kept{static_cast<const typename Panels::Word*>(right), divided_up(product.columns, kWide)};
    return multiply_tall<Panels>(ProductWith<Kept<Panels>, MatrixOf<Number>>{product.left, kept, product.result, product.rows,
                                                                             product.columns, product.inner, product.epilogue},
                                 workers);
  };
  if constexpr (std::is_same_v<Form, InBytes>)
    return has_byte_products() ? by(ByteBlocks<true>()) : by(ByteBlocks<false>());
  else
    return by_panels<Form>(by);
}

// What copies right operands of a form into panels that are kept.
template <typename Form>
using Keeping = std::conditional_t<std::is_same_v<Form, InBytes>, ByteBlocks<false>, Vectors<Form>>;

// Whether so many words cannot hold the panels of a right operand. A word holds four numbers at most, so sizes that do are not too large.
template <typename Form>
bool is_too_small(int64_t words, int64_t columns, int64_t inner) {
  return static_cast<double>(columns) * inner > 4.0 * words || words < kept_words<Keeping<Form>>(columns, inner);
}

// The sizes are rows, columns, the inner dimension and those of the batch; the strides of the left operand are those of rows and of
// the inner dimension, then of the batch, and of the right operand those of the inner dimension, of columns, and of the batch. One that
// is kept in panels has no strides: its panels follow one another.
template <typename Form, typename Number, bool kKept, ffi::DataType kType, ffi::DataType kRight>
ffi::Error multiply_all(ffi::ThreadPool pool, ffi::Buffer<kType> left, ffi::Buffer<kRight> right, ffi::AnyBuffer result,
                        Numbers sizes, Numbers left_strides, Numbers right_strides, Epilogue epilogue) {
  if (sizes.size() < 3) return refused("there are " + std::to_string(sizes.size()) + " sizes; expected three or more");
  int64_t elements = 1, count = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0) return refused("a size is negative");
    if (i != 2 && __builtin_mul_overflow(elements, sizes[i], &elements)) return refused("the sizes are too large");
    if (i > 2) count *= sizes[i];
  }
  if (elements != static_cast<int64_t>(result.element_count()))
    return refused("the result has " + std::to_string(result.element_count()) + " elements; its sizes say " +
                   std::to_string(elements));
  if (!elements) return ffi::Error::Success();
  const int64_t rows = sizes[0], columns = sizes[1], inner = sizes[2];
  if (!inner && epilogue.is_any()) return refused("nothing is summed over");
  if (!inner) {
    std::memset(result.untyped_data(), 0, result.size_bytes());
    return ffi::Error::Success();
  }
  const int64_t bytes = elements * static_cast<int64_t>(sizeof(float));
  ask_for_huge_pages(result.untyped_data(), static_cast<int64_t>(result.size_bytes()));
  const bool rounds = result.element_type() != ffi::F32;
  if (rounds) epilogue.rounded = static_cast<Bf16*>(result.untyped_data());
  Scratch sums(rounds && inner > Pairs::kDeep ? bytes : 0);  // sums of one block are complete when they are first stored
  float* const to = rounds ? sums.as<float>() : static_cast<float*>(result.untyped_data());
  if (!to) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "pcp product: there is no memory for sums");
  if (epilogue.before) ask_for_huge_pages(epilogue.before, bytes);
  std::vector<int64_t> of_left{rows, inner}, of_right{inner, columns};
  of_left.insert(of_left.end(), sizes.begin() + 3, sizes.end());
  of_right.insert(of_right.end(), sizes.begin() + 3, sizes.end());
  const auto kept = static_cast<int64_t>(right.element_count()) / count;
  for (auto words : {unreadable("the left operand", left.element_count(), of_left, left_strides),
                     kKept ? std::string() : unreadable("the right operand", right.element_count(), of_right, right_strides)})
    if (!words.empty()) return refused(words);
  if (kKept && is_too_small<Form>(kept, columns, inner))
    return refused("the right operand has " + std::to_string(right.element_count()) + " words, too few for its panels");
  std::atomic<bool> has_memory{true};
  auto one = [&](int64_t which, Workers workers) {
    const auto *x = static_cast<const Number*>(left.untyped_data()), *y = static_cast<const Number*>(right.untyped_data());
    for (size_t i = sizes.size(), rest = which; i-- > 3; rest /= sizes[i]) {
      x += rest % sizes[i] * left_strides[i - 1];
      if (!kKept) y += rest % sizes[i] * right_strides[i - 1];
    }
    ProductOf<Number> made{{x, left_strides[0], left_strides[1]}, {y, 0, 0}, to + which * rows * columns, rows, columns, inner,
                           epilogue.from(which * rows * columns)};
    if constexpr (kKept) {
      if (!multiply_kept<Form, Number>(made, static_cast<const uint32_t*>(right.untyped_data()) + which * kept, workers))
        has_memory = false;
    } else {
      made.right.down = right_strides[0], made.right.right = right_strides[1];
      if (!multiply<Form, Number>(made, workers)) has_memory = false;
    }
  };
  const bool small = static_cast<double>(rows) * columns * inner <= kAlone;
  if (small || count >= 2 * pool.num_threads())
    parallel_for(pool, count, small ? std::max<int64_t>(1, kAlone / (rows * columns * inner)) : 1,
                 [&](int64_t first, int64_t last) {
                   for (int64_t which = first; which < last; ++which) one(which, Workers{nullptr});
                 });
  else
    for (int64_t which = 0; which < count; ++which) one(which, Workers{&pool});
  if (!has_memory)
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "pcp product: there is no memory for copies of the operands");
  return ffi::Error::Success();
}

// More operands are the bias of each column, if there is one, and the residual, if there is one. The last result is the sum of it
// all, one before it the product itself. Of operands of bfloat16 the last may be the bits of such numbers.
template <typename Form, ffi::DataType kType, bool kKept, ffi::DataType kRight = kKept ? ffi::U32 : kType>
ffi::Error product(ffi::ThreadPool pool, ffi::Buffer<kType> left, ffi::Buffer<kRight> right, ffi::RemainingArgs more,
                   ffi::RemainingRets results, Numbers sizes, Numbers left_strides, Numbers right_strides, int64_t bias,
                   int64_t residual, int64_t activation) {
  if (activation < 0 || activation >= static_cast<int64_t>(Activation::count))
    return refused("there is no activation " + std::to_string(activation));
  if (bias < 0 || bias > 1 || residual < 0 || residual > 1 || more.size() != static_cast<size_t>(bias + residual))
    return refused("there are " + std::to_string(more.size()) + " operands besides the first two; the attributes say " +
                   std::to_string(bias) + " biases and " + std::to_string(residual) + " residuals");
  if (results.size() < 1 || results.size() > 2)
    return refused("there are " + std::to_string(results.size()) + " results; expected one or two");
  auto made = results.get<ffi::AnyBuffer>(results.size() - 1);
  if (!made) return made.error();
  const ffi::AnyBuffer last = **made;
  if (last.element_type() != ffi::F32 && (kType == ffi::F32 || last.element_type() != ffi::U16))
    return refused("the result is of another type");
  const int64_t elements = static_cast<int64_t>(last.element_count());
  Epilogue epilogue;
  epilogue.activation = static_cast<Activation>(activation);
  if (results.size() == 2) {
    auto before = results.get<Array>(0);
    if (!before) return before.error();
    if (static_cast<int64_t>((*before)->element_count()) != elements)
      return refused("the product has another number of elements than the result");
    epilogue.before = (*before)->typed_data();
  }
  if (bias) {
    auto found = more.get<Array>(0);
    if (!found) return found.error();
    if (sizes.size() < 2 || static_cast<int64_t>(found->element_count()) != sizes[1])
      return refused("the bias has " + std::to_string(found->element_count()) + " elements; expected one of each column");
    epilogue.bias = found->typed_data();
  }
  if (residual) {
    auto found = more.get<Array>(bias);
    if (!found) return found.error();
    if (static_cast<int64_t>(found->element_count()) != elements)
      return refused("the residual has " + std::to_string(found->element_count()) + " elements; expected " +
                     std::to_string(elements));
    epilogue.residual = found->typed_data();
  }
  using Number = std::conditional_t<kType == ffi::F32, float, Bf16>;
  return multiply_all<Form, Number, kKept>(pool, left, right, last, sizes, left_strides, right_strides, epilogue);
}

// Copies right operands into panels that are kept. The sizes are columns, the inner dimension and those of the batch; the strides are those
// of the inner dimension, of columns, and of the batch.
template <typename Form, ffi::DataType kType>
ffi::Error keep(ffi::ThreadPool pool, ffi::Buffer<kType> right, ffi::Result<ffi::Buffer<ffi::U32>> result, Numbers sizes,
                Numbers strides) {
  using Panels = Keeping<Form>;
  using Number = std::conditional_t<kType == ffi::F32, float, Bf16>;
  if (sizes.size() < 2) return refused("there are " + std::to_string(sizes.size()) + " sizes; expected two or more");
  int64_t count = 1, elements = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1 || __builtin_mul_overflow(elements, sizes[i], &elements)) return refused("a size is below 1 or too large");
    if (i > 1) count *= sizes[i];
  }
  const int64_t columns = sizes[0], inner = sizes[1];
  std::vector<int64_t> of_right{inner, columns};
  of_right.insert(of_right.end(), sizes.begin() + 2, sizes.end());
  if (const auto words = unreadable("the right operand", right.element_count(), of_right, strides); !words.empty())
    return refused(words);
  const int64_t kept = static_cast<int64_t>(result->element_count()) / count;
  if (is_too_small<Form>(kept, columns, inner))
    return refused("the result has " + std::to_string(result->element_count()) + " words, too few for its panels");
  ask_for_huge_pages(result->untyped_data(), static_cast<int64_t>(result->size_bytes()));
  const int64_t across = divided_up(columns, kWide), blocks = divided_up(inner, Panels::kDeep);
  parallel_for(pool, count * blocks * across, 1, [&](int64_t first, int64_t last) {
    for (int64_t place = first; place < last; ++place) {
      const int64_t which = place / (blocks * across), begin = place / across % blocks * Panels::kDeep, column = place % across * kWide;
      const auto* at = static_cast<const Number*>(right.untyped_data());
      for (size_t i = sizes.size(), rest = which; i-- > 2; rest /= sizes[i]) at += rest % sizes[i] * strides[i];
      const int64_t deep = std::min(Panels::kDeep, inner - begin), size = Panels::kept_size(deep);
      auto* whole = reinterpret_cast<typename Panels::Word*>(result->typed_data()) + which * kept;
      auto* to = const_cast<typename Panels::Word*>(Kept<Panels>{whole, across}.from(begin, deep, column));
      std::memset(to, 0, size * sizeof(typename Panels::Word));
      const MatrixOf<Number> matrix{at, strides[0], strides[1]};
      matrix.template copy<Panels>(begin, deep, column, std::min<int64_t>(kWide, columns - column), to);
    }
  });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace pcp

#define PCP_PRODUCT(name, ...) \
  PCP_HANDLER(name, (pcp::product<__VA_ARGS__>), "sizes", "left_strides", "right_strides", "bias", "residual", "activation")
#define PCP_KEEP(name, ...) PCP_HANDLER(name, (pcp::keep<__VA_ARGS__>), "sizes", "strides")

PCP_PRODUCT(pcp_product_f32, pcp::Singles, ffi::F32, false, ffi::F32);
PCP_PRODUCT(pcp_product_bf16, pcp::Pairs, ffi::F32, false, ffi::F32);
PCP_PRODUCT(pcp_product_bf16_x3, pcp::InParts, ffi::F32, false, ffi::F32);
PCP_PRODUCT(pcp_product_int8, pcp::InBytes, ffi::F32, false, ffi::F32);
PCP_PRODUCT(pcp_product_of_bf16, pcp::Pairs, ffi::BF16, false, ffi::BF16);
PCP_PRODUCT(pcp_kept_product_f32, pcp::Singles, ffi::F32, true, ffi::U32);
PCP_PRODUCT(pcp_kept_product_bf16, pcp::Pairs, ffi::F32, true, ffi::U32);
PCP_PRODUCT(pcp_kept_product_int8, pcp::InBytes, ffi::F32, true, ffi::U32);
PCP_PRODUCT(pcp_kept_product_of_bf16, pcp::Pairs, ffi::BF16, true, ffi::U32);
PCP_KEEP(pcp_keep_product_f32, pcp::Singles, ffi::F32);
PCP_KEEP(pcp_keep_product_bf16, pcp::Pairs, ffi::F32);
PCP_KEEP(pcp_keep_product_int8, pcp::InBytes, ffi::F32);
PCP_KEEP(pcp_keep_product_of_bf16, pcp::Pairs, ffi::BF16);
