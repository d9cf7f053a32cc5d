// Dropout of float32 numbers: their random words are made in registers, by Threefry-2x32 of the key and each number's place.
//
// Source: Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011, section 3.3; as in pcp/ops/threefry.py.
//
// Handlers are called by whatever program names them, so they look at every shape before they touch memory.

#include <algorithm>
#include <cmath>
#include <string>

#include "../native/arrays.h"
#include "../native/rows.h"
#include "../native/scratch.h"

namespace ffi = xla::ffi;

namespace pcp {
namespace {

using Key = ffi::Buffer<ffi::U32>;

typedef uint32_t Words __attribute__((vector_size(kLanes * sizeof(uint32_t))));

constexpr int64_t kGrain = 1 << 14;  // elements of a part of the work at least: about ten microseconds
constexpr int kTogether = 4;         // vectors at once: each round waits for the one before it, others do not
constexpr int64_t kStep = kTogether * kLanes;
constexpr int kUnused = 32 - 23;  // bits of a word that the mantissa of a float32 does not hold
constexpr uint32_t kParity = 0x1BD11BDA;
constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};

ffi::Error refused(const std::string& words) {
  return refused_by("dropout", words);
}

struct Draw {
  uint32_t key[3];
  uint32_t below;
  float by;
  bool divides;

  // Which of the numbers from a place on, a multiple of kStep, are kept: all bits of their lanes are set.
  void masks(int64_t place, Words* kept) const {
    Words high[kTogether], low[kTogether];
    const Words lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int i = 0; i < kTogether; ++i) {
      high[i] = Words{} + (static_cast<uint32_t>(place >> 32) + key[0]);
      low[i] = lanes + (static_cast<uint32_t>(place) + static_cast<uint32_t>(i * kLanes) + key[1]);
    }
    for (int group = 0; group < 5; ++group) {
      for (int round = 0; round < 4; ++round) {
        const int by = kRotations[group % 2][round];
        for (int i = 0; i < kTogether; ++i) {
          high[i] += low[i];
          low[i] = high[i] ^ ((low[i] << by) | (low[i] >> (32 - by)));
        }
      }
      for (int i = 0; i < kTogether; ++i) {
        high[i] += key[(group + 1) % 3];
        low[i] += key[(group + 2) % 3] + static_cast<uint32_t>(group + 1);
      }
    }
    for (int i = 0; i < kTogether; ++i) kept[i] = reinterpret_cast<Words>(((high[i] ^ low[i]) >> kUnused) < Words{} + below);
  }

  void apply(const float* from, float* to, int64_t first, int64_t last) const {
    Words kept[kTogether];
    for (int64_t at = first; at < last; at += kStep) {
      masks(at, kept);
      for (int i = 0; i < kTogether && at + i * kLanes < last; ++i) {
        const int64_t place = at + i * kLanes;
        const Lanes x = part<Lanes>(from + place, last - place);
        const Lanes scaled = divides ? x / by : x * by;
        put(to + place, reinterpret_cast<Lanes>(reinterpret_cast<Words>(scaled) & kept[i]), last - place);
      }
    }
  }
};

ffi::Error dropout(ffi::ThreadPool pool, Key key, Array x, Result made, int64_t below, float by, int64_t divides) {
  if (key.dimensions().size() != 1 || key.dimensions()[0] != 2) return refused("the key does not have two words");
  if (x.dimensions().size() != 1) return refused("x has shape " + shape_of(x) + "; expected [size]");
  const int64_t size = x.dimensions()[0];
  if (!is_shape(*made, {size})) return refused("the result has shape " + shape_of(*made) + "; expected that of x");
  if (below < 0 || below > int64_t{1} << 23)
    return refused("numbers are kept below " + std::to_string(below) + "; expected 0 to 2^23");
  const uint32_t first = key.typed_data()[0], second = key.typed_data()[1];
  const Draw draw = {{first, second, first ^ second ^ kParity}, static_cast<uint32_t>(below), by, divides != 0};
  ask_for_huge_pages_of(made);
  parallel_for(pool, size, kGrain, [&](int64_t begin, int64_t end) { draw.apply(x.typed_data(), made->typed_data(), begin, end); });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace pcp

PCP_HANDLER(pcp_dropout, pcp::dropout, "below", "by", "divides");
