// Products of matrices: both operands are copied, block by block, into the order in which the innermost loop reads them. What
// converts or transposes an operand happens in that copy.
//
// Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008, sections 4 and 5; Van Zee and van de
// Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality", 2015, section 5.
//
// Handlers are called by whatever program names them, so they look at every shape and attribute before they touch memory.

#include "arrays.h"
#include "panels.h"
#include "rows.h"
#include "scratch.h"

#include <string>
#include <vector>

namespace ffi = xla::ffi;

namespace pcp {
namespace {

using Numbers = ffi::Span<const int64_t>;

ffi::Error refused(const std::string& words) {
  return refused_by("product", words);
}

constexpr int64_t kTall = 36 * kHigh;                  // rows of the left operand that stay in the second cache
constexpr int64_t kBroad = 16 * kWide;                 // columns of the right operand that one thread copies at once
constexpr int64_t kCopied = int64_t{16} << 20;         // bytes of the left operand that are copied at once
constexpr int64_t kTasks = 4;                          // for each thread, so that a slow one does not keep the others waiting
constexpr int64_t kAlone = int64_t{1} << 18;           // multiplications of a product that is not worth a second thread

// Element (i, j) lies at `at[i * down + j * right]`.
struct Matrix {
  const float* at;
  int64_t down, right;
};

struct Product {
  Matrix left, right;
  float* result;
  int64_t rows, columns, inner;
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

// Puts sums from registers into the result, or adds them to what lies there.
void write(const Sums sums, float* to, int64_t width, int64_t high, int64_t wide, bool adds) {
  if (wide >= kWide) {
    for (int64_t i = 0; i < high; ++i)
      for (int half = 0; half < 2; ++half) {
        float* place = to + i * width + half * kRegister;
        Register total = sums[i][half], before;
        if (adds) {
          std::memcpy(&before, place, sizeof before);
          total += before;
        }
        std::memcpy(place, &total, sizeof total);
      }
    return;
  }
  for (int64_t i = 0; i < high; ++i)
    for (int64_t j = 0; j < wide; ++j) {
      const float value = sums[i][j / kRegister][j % kRegister];
      float* place = to + i * width + j;
      *place = adds ? *place + value : value;
    }
}

// A part of the result, from copied left panels: rows [top, bottom), columns [first, last), one block of the inner dimension.
template <typename Form>
void multiply_block(const Product& product, const typename Form::Word* left, typename Form::Word* right, int64_t top,
                    int64_t bottom, int64_t first, int64_t last, int64_t begin, int64_t deep) {
  constexpr int64_t kLeft = kPanel<Form, kHigh>, kRight = kPanel<Form, kWide>;
  const Matrix& from = product.right;
  for (int64_t column = first; column < last; column += kWide)
    copy_panel<Form, kWide>(from.at + begin * from.down + column * from.right, from.right, from.down,
                            std::min<int64_t>(kWide, last - column), deep, right + (column - first) / kWide * kRight);
  const int64_t words = divided_up(deep, Form::kNumbers);
  for (int64_t tall = top; tall < bottom; tall += kTall)
    for (int64_t column = first; column < last; column += kWide)
      for (int64_t row = tall; row < std::min(bottom, tall + kTall); row += kHigh) {
        Sums sums = {};
        Form::multiply(words, left + row / kHigh * kLeft, right + (column - first) / kWide * kRight, sums);
        write(sums, product.result + row * product.columns + column, product.columns,
              std::min<int64_t>(kHigh, bottom - row), std::min<int64_t>(kWide, last - column), begin > 0);
      }
}

// False if there is no memory for the copies.
template <typename Form>
bool multiply(const Product& product, Workers workers) {
  using Word = typename Form::Word;
  constexpr int64_t kLeft = kPanel<Form, kHigh>, kRight = kPanel<Form, kWide>;
  const int64_t panels = divided_up(product.rows, kHigh);
  const int64_t fits = std::max<int64_t>(1, kCopied / (panels * kLeft * static_cast<int64_t>(sizeof(Word))));
  const int64_t blocks = std::min(fits, divided_up(product.inner, kDeep));
  const int64_t tasks = workers.count() == 1 ? 1 : kTasks * workers.count();
  const int64_t broad = std::min(kBroad, divided_up(divided_up(product.columns, tasks), kWide) * kWide);
  const int64_t across = divided_up(product.columns, broad);
  const int64_t high = divided_up(panels, divided_up(tasks, across)) * kHigh;
  const int64_t down = divided_up(product.rows, high);
  Scratch left(blocks * panels * kLeft * sizeof(Word));
  if (!left.as<Word>()) return false;
  std::atomic<bool> has_memory{true};
  for (int64_t begin = 0; begin < product.inner; begin += blocks * kDeep) {
    const int64_t deep = std::min(blocks * kDeep, product.inner - begin), here = divided_up(deep, kDeep);
    workers.each(here * panels, std::max<int64_t>(1, here * panels / tasks), [&](int64_t first, int64_t last) {
      for (int64_t which = first; which < last; ++which) {
        const int64_t row = which % panels * kHigh, at = begin + which / panels * kDeep;
        const Matrix& from = product.left;
        copy_panel<Form, kHigh>(from.at + row * from.down + at * from.right, from.down, from.right,
                                std::min<int64_t>(kHigh, product.rows - row),
                                std::min(kDeep, begin + deep - at), left.as<Word>() + which * kLeft);
      }
    });
    workers.each(across * down, 1, [&](int64_t first, int64_t last) {
      Scratch right(broad / kWide * kRight * sizeof(Word));
      if (!right.as<Word>()) {
        has_memory = false;
        return;
      }
      for (int64_t task = first; task < last; ++task) {
        const int64_t column = task / down * broad, row = task % down * high;
        for (int64_t block = 0; block < here; ++block)
          multiply_block<Form>(product, left.as<Word>() + block * panels * kLeft, right.as<Word>(), row,
                               std::min(product.rows, row + high), column, std::min(product.columns, column + broad),
                               begin + block * kDeep, std::min(kDeep, deep - block * kDeep));
      }
    });
  }
  return has_memory;
}

// What is wrong with how an operand is read; empty if nothing is: every element lies within the array.
std::string complaint(const char* name, const Array& array, Numbers sizes, Numbers strides) {
  int64_t last = 0;
  if (strides.size() != sizes.size())
    return std::string(name) + " has " + std::to_string(strides.size()) + " strides; expected " + std::to_string(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t far;
    if (strides[i] < 0 || __builtin_mul_overflow(strides[i], sizes[i] - 1, &far) || __builtin_add_overflow(last, far, &last))
      return std::string("a stride of ") + name + " is negative or too large";
  }
  if (last >= static_cast<int64_t>(array.element_count()))
    return std::string(name) + " has " + std::to_string(array.element_count()) + " elements; its strides reach element " +
           std::to_string(last);
  return "";
}

// The sizes are rows, columns, the inner dimension and those of the batch; the strides of the left operand are those of rows and of
// the inner dimension, then of the batch, and of the right operand those of the inner dimension, of columns, and of the batch.
template <typename Form>
ffi::Error product(ffi::ThreadPool pool, Array left, Array right, Result result, Numbers sizes, Numbers left_strides,
                   Numbers right_strides) {
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
  if (!inner) {
    std::fill_n(result->typed_data(), elements, 0.0f);
    return ffi::Error::Success();
  }
  std::vector<int64_t> of_left{rows, inner}, of_right{inner, columns};
  of_left.insert(of_left.end(), sizes.begin() + 3, sizes.end());
  of_right.insert(of_right.end(), sizes.begin() + 3, sizes.end());
  for (auto words : {complaint("the left operand", left, Numbers(of_left.data(), of_left.size()), left_strides),
                     complaint("the right operand", right, Numbers(of_right.data(), of_right.size()), right_strides)})
    if (!words.empty()) return refused(words);
  std::atomic<bool> has_memory{true};
  auto one = [&](int64_t which, Workers workers) {
    const float *x = left.typed_data(), *y = right.typed_data();
    for (size_t i = sizes.size(), rest = which; i-- > 3; rest /= sizes[i]) {
      x += rest % sizes[i] * left_strides[i - 1];
      y += rest % sizes[i] * right_strides[i - 1];
    }
    const Product made{{x, left_strides[0], left_strides[1]}, {y, right_strides[0], right_strides[1]},
                       result->typed_data() + which * rows * columns, rows, columns, inner};
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

}  // namespace
}  // namespace pcp

#define PCP_PRODUCT(name, form)                                                                            \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, pcp::product<pcp::form>,                                             \
                                ffi::Ffi::Bind()                                                           \
                                    .Ctx<ffi::ThreadPool>()                                                \
                                    .Arg<pcp::Array>()                                                     \
                                    .Arg<pcp::Array>()                                                     \
                                    .Ret<pcp::Array>()                                                     \
                                    .Attr<pcp::Numbers>("sizes")                                           \
                                    .Attr<pcp::Numbers>("left_strides")                                    \
                                    .Attr<pcp::Numbers>("right_strides"))

PCP_PRODUCT(pcp_product_f32, Singles);
PCP_PRODUCT(pcp_product_bf16, Pairs);
