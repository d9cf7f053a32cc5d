// The matrix that a convolution multiplies by its kernel: a row for each place of the result, in it the numbers under the window there.
// It is never in memory: its parts are gathered from the input where they are copied into panels.
//
// Source: Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014, section 3.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../native/panels/panels.h"
#include "../native/scratch.h"

namespace pcp {

// One way through the input: axes that are counted like the digits of a number, the last one fastest.
struct Walk {
  std::vector<int64_t> order, sizes, steps;  // axes of the input, and, by axis, how many places there are, and how far apart

  int64_t count() const {
    int64_t found = 1;
    for (int64_t size : sizes) found *= size;
    return found;
  }
  // The axis that changes fastest.
  int64_t fastest() const {
    for (size_t i = order.size(); i-- > 0;)
      if (sizes[order[i]] > 1) return order[i];
    return order.back();
  }
  // Where place `index` is along each axis.
  void find(int64_t index, int64_t* places) const {
    for (size_t i = order.size(); i-- > 0; index /= sizes[order[i]]) places[order[i]] = index % sizes[order[i]];
  }
};

struct Patches {
  static constexpr size_t kAxes = 8;  // that an input may have

  const float* at;
  std::vector<int64_t> sizes, strides, before;  // of the input's axes; `before` is padding, whose numbers are 0
  Walk rows, inner;
  int64_t first = 0;  // row

  // The rows from one on.
  Patches from(int64_t row) const {
    Patches made = *this;
    made.first += row;
    return made;
  }

  // Copies `high` rows from `row` on into a panel of the left operand, of the block of the inner dimension from `begin` on.
  template <typename Panels>
  bool copy_rows(int64_t row, int64_t high, int64_t begin, int64_t deep, typename Panels::Word* to) const {
    Scratch kept(Panels::kHigh * deep * static_cast<int64_t>(sizeof(float)));
    float* block = kept.as<float>();
    if (!block) return false;
    const int64_t side_by_side = run(rows);
    if (side_by_side > 1 && side_by_side >= run(inner)) {
      gather<true>(first + row, high, begin, deep, Panels::kHigh, block);
      Panels::copy_left(block, 1, Panels::kHigh, high, deep, to);
    } else {
      gather<false>(first + row, high, begin, deep, deep, block);
      Panels::copy_left(block, deep, 1, high, deep, to);
    }
    return true;
  }

 private:
  // How many numbers of a walk lie side by side.
  int64_t run(const Walk& walk) const {
    const int64_t along = walk.fastest();
    return strides[along] == 1 && walk.steps[along] == 1 ? walk.sizes[along] : 1;
  }

  // Puts row i, number k at `to[i * width + k]`, or at `to[k * width + i]` if rows lie side by side.
  template <bool kSideBySide>
  void gather(int64_t row, int64_t high, int64_t begin, int64_t deep, int64_t width, float* to) const {
    const int64_t down = rows.fastest(), right = inner.fastest(), axes = static_cast<int64_t>(sizes.size());
    int64_t of_row[kAxes], of_inner[kAxes], places[kAxes];
    for (int64_t i = 0, count; i < high; i += count) {
      rows.find(row + i, of_row);
      count = std::min(high - i, rows.sizes[down] - of_row[down]);
      for (int64_t k = 0, wide; k < deep; k += wide) {
        inner.find(begin + k, of_inner);
        wide = std::min(deep - k, inner.sizes[right] - of_inner[right]);
        int64_t from = 0;
        bool there = true;
        for (int64_t axis = 0; axis < axes; ++axis) {
          places[axis] = of_row[axis] * rows.steps[axis] + of_inner[axis] * inner.steps[axis] - before[axis];
          from += places[axis] * strides[axis];
          there = there && (axis == down || axis == right || (places[axis] >= 0 && places[axis] < sizes[axis]));
        }
        const Line of_rows{down, rows.steps[down], count, places[down]}, of_windows{right, inner.steps[right], wide, places[right]};
        float* place = to + (kSideBySide ? k * width + i : i * width + k);
        copy(there, from, kSideBySide ? of_windows : of_rows, kSideBySide ? of_rows : of_windows, width, place);
      }
    }
  }

  // A part of a walk along one axis of the input.
  struct Line {
    int64_t axis, step, count, begin;

    // Those of its places, `by` further on, that are in the input: [first, last).
    void within(int64_t size, int64_t by, int64_t& first, int64_t& last) const {
      const int64_t place = begin + by;
      first = place >= 0 ? 0 : step ? std::min(count, (step - 1 - place) / step) : count;
      last = place >= size ? 0 : step ? std::min(count, (size - 1 - place) / step + 1) : count;
      if (last < first) last = first;
    }
  };

  // Copies a line for each place of another: number j of line l to `to[l * width + j]`.
  void copy(bool there, int64_t from, const Line& lines, const Line& line, int64_t width, float* to) const {
    const int64_t apart = line.step * strides[line.axis], further = lines.step * strides[lines.axis];
    const bool same = lines.axis == line.axis;
    int64_t begin, end, first, last;
    lines.within(sizes[lines.axis], 0, begin, end);
    line.within(sizes[line.axis], 0, first, last);
    for (int64_t l = 0; l < lines.count; ++l, to += width, from += further) {
      if (same) line.within(sizes[line.axis], l * lines.step, first, last);
      if (!there || first == last || (!same && (l < begin || l >= end))) {
        copy_line(nullptr, line.count, to);
        continue;
      }
      if (first > 0) copy_line(nullptr, first, to);
      if (apart == 1)
        copy_line(at + from + first, last - first, to + first);
      else
        for (int64_t j = first; j < last; ++j) to[j] = at[from + j * apart];
      if (last < line.count) copy_line(nullptr, line.count - last, to + last);
    }
  }

  // Copies so many numbers, or zeros.
  static void copy_line(const float* source, int64_t count, float* to) {
#if defined(__AVX512F__)
    for (int64_t j = 0; j < count; j += 16) {
      const __mmask16 there = first_lanes(count - j);
      _mm512_mask_storeu_ps(to + j, there, source ? _mm512_maskz_loadu_ps(there, source + j) : _mm512_setzero_ps());
    }
#else
    if (source)
      std::memcpy(to, source, count * sizeof(float));
    else
      std::fill_n(to, count, 0.0f);
#endif
  }
};

}  // namespace pcp
