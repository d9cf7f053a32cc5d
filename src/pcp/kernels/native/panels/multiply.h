// Products of matrices by panels: both operands are copied, block by block, into the order in which the innermost loop reads them.
//
// Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008, sections 4 and 5; Van Zee and van de
// Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality", 2015, section 5.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "../elementwise.h"
#include "../rows.h"
#include "../scratch.h"
#include "panels.h"

namespace pcp {

namespace ffi = xla::ffi;

constexpr int64_t kBroad = 16 * kWide;                 // columns of the right operand that one thread copies at once, at most
constexpr int64_t kCopied = int64_t{16} << 20;         // bytes of the left operand that are copied at once
constexpr int64_t kCopiedAlone = int64_t{4} << 20;     // the same by a thread that is alone: it has no others to wait for
constexpr int64_t kPart = 224;                         // rows of a part of a tall product: whole panels of 14 and of 32
constexpr int64_t kParts = 2;                          // of them for each thread, at least
constexpr int64_t kFew = 256;                          // columns of a tall product, at most: they are copied for every part
constexpr int64_t kTasks = 4;                          // for each thread, so that a slow one does not keep the others waiting

// Element (i, j) lies at `at[i * down + j * right]`.
template <typename Number>
struct MatrixOf {
  const Number* at;
  int64_t down, right;

  // Copies a panel of columns from `column` on, of which `lanes` are there, of the block of the inner dimension from `begin` on.
  template <typename Panels>
  void copy(int64_t begin, int64_t deep, int64_t column, int64_t lanes, typename Panels::Word* to) const {
    Panels::copy_right(at + begin * down + column * right, right, down, lanes, deep, to);
  }

  // The rows from one on.
  MatrixOf from(int64_t row) const { return {at + row * down, down, right}; }

  // Copies `high` rows from `row` on into a panel of the left operand. False if there is no memory.
  template <typename Panels>
  bool copy_rows(int64_t row, int64_t high, int64_t begin, int64_t deep, typename Panels::Word* to) const {
    Panels::copy_left(at + row * down + begin * right, down, right, high, deep, to);
    return true;
  }
};

using Matrix = MatrixOf<float>;

// A right operand that lies in panels: block by block of the inner dimension, of each the panels of all columns, `kept_size` words each.
template <typename Panels>
struct Kept {
  const typename Panels::Word* at;
  int64_t panels;  // of columns

  // The panels of columns from one on, in the block of the inner dimension from `begin` on.
  const typename Panels::Word* from(int64_t begin, int64_t deep, int64_t column) const {
    return at + begin / Panels::kDeep * panels * Panels::kept_size(Panels::kDeep) + column / kWide * Panels::kept_size(deep);
  }
};

// Words of one.
template <typename Panels>
int64_t kept_words(int64_t columns, int64_t inner) {
  const int64_t rest = inner % Panels::kDeep;
  return divided_up(columns, kWide) * (inner / Panels::kDeep * Panels::kept_size(Panels::kDeep) + (rest ? Panels::kept_size(rest) : 0));
}

template <typename Operand>
constexpr bool kIsMatrix = false;
template <typename Number>
constexpr bool kIsMatrix<MatrixOf<Number>> = true;
template <typename Operand>
constexpr bool kIsKept = false;
template <typename Panels>
constexpr bool kIsKept<Kept<Panels>> = true;

// What is done to sums when they are complete, before they are stored for the first time; what is null is left out.
struct Epilogue {
  float* before = nullptr;          // the sums themselves are stored here
  const float* scale = nullptr;     // of each column, before the bias
  const float* bias = nullptr;      // of each column
  Activation activation = Activation::none;
  const float* residual = nullptr;  // of each element, added last
  Bf16* rounded = nullptr;      // what comes of it is stored here, not where sums are

  bool is_any() const { return before || scale || bias || residual || rounded || activation != Activation::none; }
  Epilogue from(int64_t element) const {
    return {before ? before + element : nullptr, scale, bias, activation, residual ? residual + element : nullptr,
            rounded ? rounded + element : nullptr};
  }
  template <typename V>
  V of(V sums, int64_t element, int64_t column, int64_t count) const {
    if (scale) sums *= part<V>(scale + column, count);
    if (before) put(before + element, sums, count);
    if (bias) sums += part<V>(bias + column, count);
    sums = activated(activation, sums);
    return residual ? sums + part<V>(residual + element, count) : sums;
  }
  // Stores what comes of complete sums at `place`, or rounded.
  template <typename V>
  void finish(V sums, float* place, int64_t element, int64_t column, int64_t count) const {
    const V found = of(sums, element, column, count);
    rounded ? put(rounded + element, found, count) : put(place, found, count);
  }
};

// What is multiplied; operands copy themselves into panels, as `Matrix` does.
template <typename Right, typename Left = Matrix>
struct ProductWith {
  Left left;
  Right right;
  float* result;
  int64_t rows, columns, inner;
  Epilogue epilogue;
};
using Product = ProductWith<Matrix>;

// Copies columns [first, last) of a right operand into panels.
template <typename Panels, typename Right>
void copy_columns(const Right& right, int64_t begin, int64_t deep, int64_t first, int64_t last, typename Panels::Word* to) {
  int64_t column = first;
  if constexpr (Panels::kTogether > 1 && kIsMatrix<Right>)
    if (right.right == 1)
      for (constexpr int64_t kColumns = Panels::kTogether * kWide; column + kColumns <= last; column += kColumns)
        Panels::copy_together(right.at + begin * right.down + column, right.down, deep, to + (column - first) / kWide * Panels::kRight);
  for (; column < last; column += kWide)
    right.template copy<Panels>(begin, deep, column, std::min<int64_t>(kWide, last - column),
                                to + (column - first) / kWide * Panels::kRight);
}

// Threads of XLA's pool, or this one alone.
struct Workers {
  ffi::ThreadPool* pool;

  int64_t count() const { return pool ? std::max<int64_t>(1, pool->num_threads()) : 1; }
  void each(int64_t count, int64_t grain, RangeWork work) const {
    if (pool)
      parallel_for(*pool, count, grain, work);
    else if (count > 0)
      work(int64_t{0}, count);
  }
};

// The same of the last sums of a product with an epilogue, whose rows are `columns` long; those before them lie at `to`, in rows that
// are `width` apart. It stands apart: within the loops over panels it would cost the innermost one registers.
template <bool kWhole>
[[gnu::noinline]] void finish(const Register (*sums)[2], const Epilogue& epilogue, float* to, int64_t width, int64_t columns,
                              int64_t row, int64_t column, int64_t high, int64_t wide, bool adds) {
  for (int half = 0; half < 2; ++half) {
    const int64_t count = kWhole ? kRegister : wide - half * kRegister;
    if (count <= 0) break;
    for (int64_t i = 0; i < high; ++i) {
      const int64_t element = (row + i) * columns + column + half * kRegister;
      float* place = to + i * width + half * kRegister;
      const Register total = adds ? sums[i][half] + part<Register>(place, count) : sums[i][half];
      epilogue.finish(total, place, element, column + half * kRegister, count);
    }
  }
}

// A part of the result, from copied left panels: rows [top, bottom), columns [first, last), one block of the inner dimension.
// False if there is no memory for sums.
template <typename Panels, typename Right, typename Left>
bool multiply_block(const ProductWith<Right, Left>& product, const typename Panels::Word* left, typename Panels::Word* right, int64_t top,
                    int64_t bottom, int64_t first, int64_t last, int64_t begin, int64_t deep) {
  const typename Panels::Word* panels = right;
  int64_t size = Panels::kRight;
  if constexpr (kIsKept<Right>)
    panels = product.right.from(begin, deep, first), size = Panels::kept_size(deep);
  else
    copy_columns<Panels>(product.right, begin, deep, first, last, right);
  const int64_t words = Panels::words(deep);
  const typename Panels::Scope in_use;
  const bool ends = begin + deep == product.inner && product.epilogue.is_any();
  // Sums that are rounded in the end lie here, in the second cache, if no other block adds to them.
  const bool apart = product.epilogue.rounded && deep == product.inner;
  const int64_t width = apart ? divided_up(last - first, kWide) * kWide : product.columns;
  Scratch near(apart ? Panels::kHigh * width * static_cast<int64_t>(sizeof(float)) : 0);
  if (!near.as<float>()) return false;
  auto one = [&](int64_t row, int64_t column, int64_t from, int64_t count) {
    const typename Panels::Word* of_left = left + row / Panels::kHigh * Panels::kLeft + from * Panels::kHigh;
    const typename Panels::Word* of_right = panels + (column - first) / kWide * size + from * kWide;
    const int64_t high = std::min<int64_t>(Panels::kHigh, bottom - row), wide = std::min<int64_t>(kWide, last - column);
    float* place = apart ? near.as<float>() + column - first : product.result + row * width + column;
    const bool adds = begin > 0 || from > 0, finishes = ends && from + count == words;
    if (!from && high == Panels::kHigh && wide == kWide) Panels::ask_for(place, width);
    if (high == Panels::kHigh && wide == kWide && !finishes)
      return Panels::multiply_into(count, of_left, of_right, place, width, adds);
    Register sums[Panels::kHigh][2];
    Panels::multiply_apart(count, of_left, of_right, sums, high);
    if (finishes)
      (wide == kWide ? finish<true> : finish<false>)(sums, product.epilogue, place, width, product.columns, row, column, high, wide,
                                                     adds);
    else
      write(sums, place, width, high, wide, adds);
  };
  // The right panels stay in the second cache, and each left one comes from farther away only once.
  for (int64_t row = top; row < bottom; row += Panels::kHigh)
    for (int64_t from = 0; from < words; from += Panels::kNear)
      for (int64_t column = first; column < last; column += kWide)
        one(row, column, from, std::min(Panels::kNear, words - from));
  return true;
}

// False if there is no memory for the copies.
template <typename Panels, typename Right, typename Left>
bool multiply_panels(const ProductWith<Right, Left>& product, Workers workers) {
  using Word = typename Panels::Word;
  const int64_t panels = divided_up(product.rows, Panels::kHigh);
  const int64_t copied = workers.count() == 1 ? kCopiedAlone : kCopied;
  const int64_t fits = std::max<int64_t>(1, copied / (panels * Panels::kLeft * static_cast<int64_t>(sizeof(Word))));
  const int64_t blocks = std::min(fits, divided_up(product.inner, Panels::kDeep));
  const int64_t tasks = workers.count() == 1 ? 1 : kTasks * workers.count();
  const int64_t wide = divided_up(product.columns, std::max(tasks, divided_up(product.columns, kBroad)));
  const int64_t broad = divided_up(wide, kWide) * kWide;
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
        if (!product.left.template copy_rows<Panels>(row, std::min<int64_t>(Panels::kHigh, product.rows - row), at,
                                                     std::min(Panels::kDeep, begin + deep - at),
                                                     left.as<Word>() + which * Panels::kLeft))
          has_memory = false;
      }
    });
    workers.each(across * down, 1, [&](int64_t first, int64_t last) {
      Scratch right(kIsKept<Right> ? 0 : broad / kWide * Panels::kRight * sizeof(Word));
      if (!right.as<Word>()) {
        has_memory = false;
        return;
      }
      for (int64_t task = first; task < last; ++task) {
        const int64_t column = task / down * broad, row = task % down * high;
        for (int64_t block = 0; block < here; ++block)
          if (!multiply_block<Panels>(product, left.as<Word>() + block * panels * Panels::kLeft, right.as<Word>(), row,
                                      std::min(product.rows, row + high), column, std::min(product.columns, column + broad),
                                      begin + block * Panels::kDeep, std::min(Panels::kDeep, deep - block * Panels::kDeep)))
            has_memory = false;
      }
    });
  }
  return has_memory;
}

// The same; if there are many rows and few columns by parts of rows, each by one thread: what it copied is in its cache still when it is
// multiplied.
template <typename Panels, typename Right, typename Left>
bool multiply_tall(const ProductWith<Right, Left>& product, Workers workers) {
  const int64_t parts = divided_up(product.rows, kPart);
  if (product.columns > kFew || parts < kParts * workers.count()) return multiply_panels<Panels>(product, workers);
  std::atomic<bool> has_memory{true};
  workers.each(parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t row = first * kPart; row < std::min(product.rows, last * kPart); row += kPart) {
      const int64_t element = row * product.columns;
      const ProductWith<Right, Left> one{product.left.from(row), product.right, product.result + element,
                                         std::min(kPart, product.rows - row), product.columns, product.inner,
                                         product.epilogue.from(element)};
      if (!multiply_panels<Panels>(one, Workers{nullptr})) has_memory = false;
    }
  });
  return has_memory;
}

}  // namespace pcp
