// Products of matrices: both operands are copied, block by block, into the order in which the innermost loop reads them. What
// converts or transposes an operand happens in that copy.
//
// Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008, sections 4 and 5; Van Zee and van de
// Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality", 2015, section 5.
//
// Handlers are called by whatever program names them, so they look at every shape and attribute before they touch memory.

#include "arrays.h"
#include "elementwise.h"
#include "panels/panels.h"
#include "panels/tiles.h"
#include "rows.h"
#include "scratch.h"

#include <string>
#include <type_traits>
#include <vector>

namespace ffi = xla::ffi;

namespace pcp {
namespace {

ffi::Error refused(const std::string& words) {
  return refused_by("product", words);
}

constexpr int64_t kTall = 512;                         // rows of the left operand that stay in the second cache, at most
constexpr int64_t kBroad = 16 * kWide;                 // columns of the right operand that one thread copies at once
constexpr int64_t kCopied = int64_t{16} << 20;         // bytes of the left operand that are copied at once
constexpr int64_t kTasks = 4;                          // for each thread, so that a slow one does not keep the others waiting
constexpr int64_t kAcross = kRegister == 16 ? 16 : 2;   // lanes of the result of one row that are summed up at once
constexpr int64_t kAlone = int64_t{1} << 18;           // multiplications of a product that is not worth a second thread

// Element (i, j) lies at `at[i * down + j * right]`.
struct Matrix {
  const float* at;
  int64_t down, right;
};

// What is done to sums when they are complete, before they are stored for the first time; what is null is left out.
struct Epilogue {
  float* before = nullptr;          // the sums themselves are stored here
  const float* bias = nullptr;      // of each column
  Activation activation = Activation::none;
  const float* residual = nullptr;  // of each element, added last

  bool is_any() const { return before || bias || residual || activation != Activation::none; }
  Epilogue from(int64_t element) const {
    return {before ? before + element : nullptr, bias, activation, residual ? residual + element : nullptr};
  }
  template <typename V>
  V of(V sums, int64_t element, int64_t column, int64_t count) const {
    if (before) put(before + element, sums, count);
    if (bias) sums += part<V>(bias + column, count);
    sums = activated(activation, sums);
    return residual ? sums + part<V>(residual + element, count) : sums;
  }
};

struct Product {
  Matrix left, right;
  float* result;
  int64_t rows, columns, inner;
  Epilogue epilogue;
};

// Threads of XLA's pool, or this one alone.
struct Workers {
  ffi::ThreadPool* pool;

  int64_t count() const { return pool ? std::max<int64_t>(1, pool->num_threads()) : 1; }
  template <typename Work>
  void each(int64_t count, int64_t grain, const Work& work) const {
    if (pool)
      parallel_for(*pool, count, grain, work);
    else if (count > 0)
      work(int64_t{0}, count);
  }
};

// The same of the last sums of a product with an epilogue. It stands apart: within the loops over panels it would cost the
// innermost one registers.
[[gnu::noinline]] void finish(const Register (*sums)[2], const Product& product, int64_t row, int64_t column, int64_t high,
                              int64_t wide, bool adds) {
  for (int64_t i = 0; i < high; ++i)
    for (int half = 0; half < 2; ++half) {
      const int64_t element = (row + i) * product.columns + column + half * kRegister, count = wide - half * kRegister;
      if (count <= 0) break;
      float* place = product.result + element;
      const Register total = adds ? sums[i][half] + part<Register>(place, count) : sums[i][half];
      put(place, product.epilogue.of(total, element, column + half * kRegister, count), count);
    }
}

// A part of the result, from copied left panels: rows [top, bottom), columns [first, last), one block of the inner dimension.
template <typename Panels>
void multiply_block(const Product& product, const typename Panels::Word* left, typename Panels::Word* right, int64_t top,
                    int64_t bottom, int64_t first, int64_t last, int64_t begin, int64_t deep) {
  constexpr int64_t kRows = kTall / Panels::kHigh * Panels::kHigh;
  const Matrix& from = product.right;
  for (int64_t column = first; column < last; column += kWide)
    Panels::copy_right(from.at + begin * from.down + column * from.right, from.right, from.down,
                       std::min<int64_t>(kWide, last - column), deep, right + (column - first) / kWide * Panels::kRight);
  const int64_t words = Panels::words(deep);
  const typename Panels::Scope in_use;
  for (int64_t tall = top; tall < bottom; tall += kRows)
    for (int64_t column = first; column < last; column += kWide)
      for (int64_t row = tall; row < std::min(bottom, tall + kRows); row += Panels::kHigh) {
        const typename Panels::Word* of_left = left + row / Panels::kHigh * Panels::kLeft;
        const typename Panels::Word* of_right = right + (column - first) / kWide * Panels::kRight;
        const int64_t high = std::min<int64_t>(Panels::kHigh, bottom - row), wide = std::min<int64_t>(kWide, last - column);
        float* place = product.result + row * product.columns + column;
        const bool ends = begin + deep == product.inner && product.epilogue.is_any();
        if (high == Panels::kHigh && wide == kWide && !ends) {
          Panels::multiply_into(words, of_left, of_right, place, product.columns, begin > 0);
          continue;
        }
        Register sums[Panels::kHigh][2];
        Panels::multiply_apart(words, of_left, of_right, sums);
        if (ends)
          finish(sums, product, row, column, high, wide, begin > 0);
        else
          write(sums, place, product.columns, high, wide, begin > 0);
      }
}

// A product of one row, in whose right operand the numbers of a row lie side by side: nothing is copied but the left operand.
// Each block of columns is summed up in registers, so every number of the right operand is read once, in order.
template <typename Form>
bool multiply_row(const Product& product, Workers workers) {
  Scratch kept(product.inner * static_cast<int64_t>(sizeof(float)));
  float* left = kept.as<float>();
  if (!left) return false;
  for (int64_t k = 0; k < product.inner; ++k) left[k] = Form::kept(product.left.at[k * product.left.right]);
  const Matrix& right = product.right;
  const int64_t blocks = divided_up(product.columns, kAcross * kLanes);
  workers.each(blocks, std::max<int64_t>(1, divided_up(blocks, workers.count())), [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t column = block * kAcross * kLanes, wide = std::min(kAcross * kLanes, product.columns - column);
      Lanes totals[kAcross] = {};
      for (int64_t begin = 0; begin < product.inner; begin += Form::kDeep) {
        const int64_t end = std::min(begin + Form::kDeep, product.inner);
        Lanes sums[kAcross] = {};
        const float* at = right.at + begin * right.down + column;
        if (wide == kAcross * kLanes)
          for (int64_t k = begin; k < end; ++k, at += right.down)
#pragma GCC unroll 16
            for (int64_t i = 0; i < kAcross; ++i) sums[i] += left[k] * Form::kept(load(at + i * kLanes));
        else
          for (int64_t k = begin; k < end; ++k, at += right.down)
            for (int64_t i = 0; i * kLanes < wide; ++i)
              sums[i] += left[k] * Form::kept(part<Lanes>(at + i * kLanes, wide - i * kLanes));
        for (int64_t i = 0; i < kAcross; ++i) totals[i] += sums[i];
      }
      for (int64_t i = 0; i * kLanes < wide; ++i) {
        const int64_t here = column + i * kLanes, count = wide - i * kLanes;
        put(product.result + here, product.epilogue.of(totals[i], here, here, count), count);
      }
    }
  });
  return true;
}

// A product of one row, in whose right operand the numbers of a column lie side by side.
template <typename Form>
bool multiply_row_turned(const Product& product, Workers workers) {
  Scratch kept(product.inner * static_cast<int64_t>(sizeof(float)));
  float* left = kept.as<float>();
  if (!left) return false;
  for (int64_t k = 0; k < product.inner; ++k) left[k] = Form::kept(product.left.at[k * product.left.right]);
  const int64_t whole = product.inner / kLanes * kLanes, rest = product.inner - whole;
  const int64_t grain = divided_up(product.columns, 4 * workers.count());
  workers.each(product.columns, grain, [&](int64_t first, int64_t last) {
    constexpr int64_t kTogether = 4;
    for (int64_t column = first; column < last; column += kTogether) {
      const int64_t count = std::min(kTogether, last - column);
      Lanes found = {};
      for (int64_t j = 0; j < count; ++j) {
        const float* at = product.right.at + (column + j) * product.right.right;
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
      put(product.result + column, product.epilogue.of(found, column, column, count), count);
    }
  });
  return true;
}

// False if there is no memory for the copies.
template <typename Panels>
bool multiply_panels(const Product& product, Workers workers) {
  using Word = typename Panels::Word;
  const int64_t panels = divided_up(product.rows, Panels::kHigh);
  const int64_t fits = std::max<int64_t>(1, kCopied / (panels * Panels::kLeft * static_cast<int64_t>(sizeof(Word))));
  const int64_t blocks = std::min(fits, divided_up(product.inner, Panels::kDeep));
  const int64_t tasks = workers.count() == 1 ? 1 : kTasks * workers.count();
  const int64_t broad = std::min(kBroad, divided_up(divided_up(product.columns, tasks), kWide) * kWide);
  const int64_t across = divided_up(product.columns, broad);
  const int64_t high = divided_up(panels, divided_up(tasks, across)) * Panels::kHigh;
  const int64_t down = divided_up(product.rows, high);
  Scratch left(blocks * panels * Panels::kLeft * sizeof(Word));
  if (!left.as<Word>()) return false;
  std::atomic<bool> has_memory{true};
  for (int64_t begin = 0; begin < product.inner; begin += blocks * Panels::kDeep) {
    const int64_t deep = std::min(blocks * Panels::kDeep, product.inner - begin), here = divided_up(deep, Panels::kDeep);
    workers.each(here * panels, std::max<int64_t>(1, here * panels / tasks), [&](int64_t first, int64_t last) {
      for (int64_t which = first; which < last; ++which) {
        const int64_t row = which % panels * Panels::kHigh, at = begin + which / panels * Panels::kDeep;
        const Matrix& from = product.left;
        Panels::copy_left(from.at + row * from.down + at * from.right, from.down, from.right,
                                std::min<int64_t>(Panels::kHigh, product.rows - row),
                                std::min(Panels::kDeep, begin + deep - at), left.as<Word>() + which * Panels::kLeft);
      }
    });
    workers.each(across * down, 1, [&](int64_t first, int64_t last) {
      Scratch right(broad / kWide * Panels::kRight * sizeof(Word));
      if (!right.as<Word>()) {
        has_memory = false;
        return;
      }
      for (int64_t task = first; task < last; ++task) {
        const int64_t column = task / down * broad, row = task % down * high;
        for (int64_t block = 0; block < here; ++block)
          multiply_block<Panels>(product, left.as<Word>() + block * panels * Panels::kLeft, right.as<Word>(), row,
                               std::min(product.rows, row + high), column, std::min(product.columns, column + broad),
                               begin + block * Panels::kDeep, std::min(Panels::kDeep, deep - block * Panels::kDeep));
      }
    });
  }
  return has_memory;
}

// The same, by whatever is fastest for its sizes here.
template <typename Form>
bool multiply(const Product& product, Workers workers) {
  if (product.columns == 1 && product.rows > 1 && !product.epilogue.bias) {
    const Matrix row{product.right.at, 0, product.right.down}, turned{product.left.at, product.left.right, product.left.down};
    return multiply<Form>({row, turned, product.result, 1, product.rows, product.inner, product.epilogue}, workers);
  }
  if (product.rows == 1 && product.right.right == 1) return multiply_row<Form>(product, workers);
  if (product.rows == 1 && product.right.down == 1) return multiply_row_turned<Form>(product, workers);
#if defined(PCP_TILES)
  if constexpr (std::is_same_v<Form, Pairs>)
    if (has_tiles()) return multiply_panels<Tiles>(product, workers);
#endif
  return multiply_panels<Vectors<Form>>(product, workers);
}

// The sizes are rows, columns, the inner dimension and those of the batch; the strides of the left operand are those of rows and of
// the inner dimension, then of the batch, and of the right operand those of the inner dimension, of columns, and of the batch.
template <typename Form>
ffi::Error multiply_all(ffi::ThreadPool pool, Array left, Array right, Result result, Numbers sizes, Numbers left_strides,
                        Numbers right_strides, const Epilogue& epilogue) {
  if (sizes.size() < 3) return refused("there are " + std::to_string(sizes.size()) + " sizes; expected three or more");
  int64_t elements = 1, count = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0) return refused("a size is negative");
    if (i != 2 && __builtin_mul_overflow(elements, sizes[i], &elements)) return refused("the sizes are too large");
    if (i > 2) count *= sizes[i];
  }
  if (elements != static_cast<int64_t>(result->element_count()))
    return refused("the result has " + std::to_string(result->element_count()) + " elements; its sizes say " +
                   std::to_string(elements));
  if (!elements) return ffi::Error::Success();
  const int64_t rows = sizes[0], columns = sizes[1], inner = sizes[2];
  if (!inner && epilogue.is_any()) return refused("nothing is summed over");
  if (!inner) {
    std::fill_n(result->typed_data(), elements, 0.0f);
    return ffi::Error::Success();
  }
  const int64_t bytes = elements * static_cast<int64_t>(sizeof(float));
  ask_for_huge_pages(result->typed_data(), bytes);
  if (epilogue.before) ask_for_huge_pages(epilogue.before, bytes);
  std::vector<int64_t> of_left{rows, inner}, of_right{inner, columns};
  of_left.insert(of_left.end(), sizes.begin() + 3, sizes.end());
  of_right.insert(of_right.end(), sizes.begin() + 3, sizes.end());
  for (auto words : {unreadable("the left operand", left.element_count(), of_left, left_strides),
                     unreadable("the right operand", right.element_count(), of_right, right_strides)})
    if (!words.empty()) return refused(words);
  std::atomic<bool> has_memory{true};
  auto one = [&](int64_t which, Workers workers) {
    const float *x = left.typed_data(), *y = right.typed_data();
    for (size_t i = sizes.size(), rest = which; i-- > 3; rest /= sizes[i]) {
      x += rest % sizes[i] * left_strides[i - 1];
      y += rest % sizes[i] * right_strides[i - 1];
    }
    const Product made{{x, left_strides[0], left_strides[1]}, {y, right_strides[0], right_strides[1]},
                       result->typed_data() + which * rows * columns, rows, columns, inner, epilogue.from(which * rows * columns)};
    if (!multiply<Form>(made, workers)) has_memory = false;
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
// all, one before it the product itself.
template <typename Form>
ffi::Error product(ffi::ThreadPool pool, Array left, Array right, ffi::RemainingArgs more, ffi::RemainingRets results,
                            Numbers sizes, Numbers left_strides, Numbers right_strides, int64_t bias, int64_t residual,
                            int64_t activation) {
  if (activation < 0 || activation >= static_cast<int64_t>(Activation::count))
    return refused("there is no activation " + std::to_string(activation));
  if (bias < 0 || bias > 1 || residual < 0 || residual > 1 || more.size() != static_cast<size_t>(bias + residual))
    return refused("there are " + std::to_string(more.size()) + " operands besides the first two; the attributes say " +
                   std::to_string(bias) + " biases and " + std::to_string(residual) + " residuals");
  if (results.size() < 1 || results.size() > 2)
    return refused("there are " + std::to_string(results.size()) + " results; expected one or two");
  auto made = results.get<Array>(results.size() - 1);
  if (!made) return made.error();
  const int64_t elements = static_cast<int64_t>((*made)->element_count());
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
  return multiply_all<Form>(pool, left, right, *made, sizes, left_strides, right_strides, epilogue);
}

}  // namespace
}  // namespace pcp

#define PCP_PRODUCT(name, form)                                                                            \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, pcp::product<pcp::form>,                                             \
                                ffi::Ffi::Bind()                                                           \
                                    .Ctx<ffi::ThreadPool>()                                                \
                                    .Arg<pcp::Array>()                                                     \
                                    .Arg<pcp::Array>()                                                     \
                                    .RemainingArgs()                                                       \
                                    .RemainingRets()                                                       \
                                    .Attr<pcp::Numbers>("sizes")                                           \
                                    .Attr<pcp::Numbers>("left_strides")                                    \
                                    .Attr<pcp::Numbers>("right_strides")                                   \
                                    .Attr<int64_t>("bias")                                                 \
                                    .Attr<int64_t>("residual")                                             \
                                    .Attr<int64_t>("activation"))

PCP_PRODUCT(pcp_product_f32, Singles);
PCP_PRODUCT(pcp_product_bf16, Pairs);
