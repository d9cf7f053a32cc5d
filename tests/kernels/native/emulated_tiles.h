// Stands in for AMX where a processor has none: tile registers in memory, one set for each thread, by Intel's description of each
// instruction. Whatever would fault there ends the process here. `tiles.h` includes it where a test defines PCP_EMULATED_TILES.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emulated {

struct Registers {
  bool configured = false;
  int rows[8] = {}, bytes[8] = {};
  unsigned char data[8][16][64] = {};
};
inline Registers& registers() {
  static thread_local Registers found;
  return found;
}

inline Registers& checked(int tile) {
  Registers& here = registers();
  if (!here.configured || tile < 0 || tile > 7 || !here.rows[tile]) {
    std::fprintf(stderr, "tile %d is used before it is configured\n", tile);
    std::abort();
  }
  return here;
}

inline void load_configuration(const void* at) {
  unsigned char given[64];
  std::memcpy(given, at, sizeof given);
  Registers& here = registers();
  if (given[0] != 1 || given[1] != 0) std::abort();  // palette, first row
  for (int i = 0; i < 8; ++i) {
    uint16_t bytes;
    std::memcpy(&bytes, given + 16 + 2 * i, sizeof bytes);
    here.bytes[i] = bytes;
    here.rows[i] = given[48 + i];
    if (bytes > 64 || here.rows[i] > 16) std::abort();
  }
  std::memset(here.data, 0xff, sizeof here.data);  // NaN: nothing may count on what was there
  here.configured = true;
}

inline void release() { registers() = Registers{}; }

inline void zero(int tile) { std::memset(checked(tile).data[tile], 0, sizeof registers().data[tile]); }

inline void load(int tile, const void* from, int64_t stride) {
  Registers& here = checked(tile);
  for (int i = 0; i < here.rows[tile]; ++i)
    std::memcpy(here.data[tile][i], static_cast<const char*>(from) + i * stride, here.bytes[tile]);
}

inline void store(int tile, void* to, int64_t stride) {
  Registers& here = checked(tile);
  for (int i = 0; i < here.rows[tile]; ++i)
    std::memcpy(static_cast<char*>(to) + i * stride, here.data[tile][i], here.bytes[tile]);
}

inline float of_pair(const unsigned char* word, int which) {
  uint32_t bits = 0;
  std::memcpy(reinterpret_cast<unsigned char*>(&bits) + 2, word + 2 * which, 2);
  float found;
  std::memcpy(&found, &bits, sizeof found);
  return found;
}

// TDPBF16PS: sums of the first numbers of pairs and of the second ones, added at the end.
inline void multiply(int sums, int left, int right) {
  Registers& here = checked(sums);
  checked(left), checked(right);
  const int inner = here.bytes[left] / 4, columns = here.bytes[sums] / 4;
  if (here.rows[left] != here.rows[sums] || here.rows[right] != inner || here.bytes[right] != here.bytes[sums]) std::abort();
  for (int i = 0; i < here.rows[sums]; ++i) {
    float total[2][16] = {};
    for (int k = 0; k < inner; ++k)
      for (int j = 0; j < columns; ++j)
        for (int half = 0; half < 2; ++half)
          total[half][j] += of_pair(here.data[left][i] + 4 * k, half) * of_pair(here.data[right][k] + 4 * j, half);
    for (int j = 0; j < columns; ++j) {
      float before;
      std::memcpy(&before, here.data[sums][i] + 4 * j, sizeof before);
      before += total[0][j] + total[1][j];
      std::memcpy(here.data[sums][i] + 4 * j, &before, sizeof before);
    }
  }
}

}  // namespace emulated

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated::load_configuration
#define _tile_release emulated::release
#define _tile_zero emulated::zero
#define _tile_loadd emulated::load
#define _tile_stored emulated::store
#define _tile_dpbf16ps emulated::multiply
