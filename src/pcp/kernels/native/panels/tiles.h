// Panels for the tile registers of AMX: eight registers of 16 rows of 64 bytes. A product keeps 32 rows and 32 columns of sums in four of
// them. The right panels are those of `Pairs`; a left panel has its 32 rows in blocks of 16 pairs, each block a tile as it is loaded.
//
// Code for tiles is compiled beside the code for AVX-512, and called where the processor and the system have them.
//
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18 (configuration), and volume 2, TDPBF16PS.
#pragma once

#include <type_traits>

#include "panels.h"

#if defined(PCP_EMULATED_TILES)
#define PCP_TILES 1
#include PCP_EMULATED_TILES
#elif defined(__AVX512BF16__) && defined(__linux__) && defined(__x86_64__) && (defined(__clang__) || __GNUC__ >= 11)
#define PCP_TILES 1
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(PCP_TILES)
#include <cstdlib>

namespace pcp {

#if defined(PCP_EMULATED_TILES)
#define PCP_WITH_TILES
inline bool processor_has_tiles() { return true; }
#else
#define PCP_WITH_TILES __attribute__((target("amx-tile,amx-bf16")))

// Whether there are tiles, and the system saves them when it changes threads. Linux has every process ask once, before its first use.
inline bool processor_has_tiles() {
  static const bool found = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kTile = 1u << 24, kPairs = 1u << 22, kSaved = 1u << 27;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & kSaved)) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (kTile | kPairs)) != (kTile | kPairs)) return false;
    unsigned low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    constexpr unsigned kConfiguration = 1u << 17, kData = 1u << 18;
    if ((low & (kConfiguration | kData)) != (kConfiguration | kData)) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return found;
}
#endif

// Whether PCP_MASK_FEATURES hides them; it is read each time, as a test may set it, by the thread that computes: what is computed after a
// test has taken it back uses tiles.
inline bool are_tiles_hidden() {
  const char* hidden = std::getenv("PCP_MASK_FEATURES");
  for (const char* name : {"amx_tile", "amx_bf16"})
    for (const char* at = hidden; at && (at = std::strstr(at, name)); ++at) {
      const char before = at == hidden ? ',' : at[-1], after = at[std::strlen(name)];
      if ((before == ',' || before == ' ') && (after == ',' || after == ' ' || !after)) return true;
    }
  return false;
}

inline bool has_tiles() { return processor_has_tiles() && !are_tiles_hidden(); }

// As Intel lays it out: all eight registers have 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  uint8_t palette = 1, first_row = 0, unused[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64, "what the processor reads");
inline constexpr TileShapes kTileShapes{};

// Tile registers belong to a thread from here to the end of the scope; it saves them whenever it waits until then.
struct TilesInUse {
  PCP_WITH_TILES TilesInUse() { _tile_loadconfig(&kTileShapes); }
  PCP_WITH_TILES ~TilesInUse() { _tile_release(); }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;
};

// The same numbers as `Pairs`, multiplied by tiles.
struct Tiles : Pairs {
  static_assert(kWide == 32, "a right panel is two tiles wide");
  static constexpr int kHigh = 32;
  // A right panel of it takes 64 KiB. With half as much, which the first cache holds, products took 5 to 11 % longer.
  static constexpr int64_t kDeep = 1024;
  static constexpr int64_t kPairs = 16, kTile = 16 * kPairs;  // in a row of a tile, and in a tile
  static constexpr int64_t kLeft = kHigh * kDeep / kNumbers, kRight = kWide * kDeep / kNumbers;  // words of a panel
  // A left panel stays in the first cache while it meets the right panels of a block, so many words of it at once; sums meanwhile lie in
  // the second cache.
  static constexpr int64_t kNear = 256, kTogether = 4;
  using Scope = TilesInUse;

  // Words of a panel of so many numbers: whole tiles.
  static constexpr int64_t words(int64_t deep) { return divided_up(divided_up(deep, kNumbers), kPairs) * kPairs; }

  static constexpr int64_t left_size(int64_t deep) { return words(deep) * kHigh; }
  static constexpr int64_t right_size(int64_t deep) { return words(deep) * kWide; }
  static int64_t kept_size(int64_t deep) { return Vectors<Pairs>::kept_size(deep); }

  // As `copy_panel`. Tile (w / 16, half) lies at (2 * (w / 16) + half) * kTile.
  template <typename Number>
  static void copy_left(const Number* at, int64_t lane, int64_t step, int64_t lanes, int64_t deep, Word* to) {
    for (int64_t begin = 0; begin < deep; begin += kNumbers * kPairs)
      for (int64_t half = 0; half < 2; ++half, to += kTile)
        copy_tile<Pairs>(at + begin * step + 16 * half * lane, lane, step, lanes - 16 * half, deep - begin, to);
  }

  template <typename Form = Pairs, typename Number>
  static void copy_right(const Number* at, int64_t lane, int64_t step, int64_t lanes, int64_t deep, Word* to) {
    copy_panel<Form, kWide>(at, lane, step, lanes, deep, to);
    const int64_t filled = divided_up(deep, kNumbers);
    std::memset(to + filled * kWide, 0, (words(deep) - filled) * kWide * sizeof(Word));
  }

  // Panels of columns that lie side by side, `apart` words from each other, row by row: each row is in a page of its own, so no
  // hardware looks ahead.
  template <typename Form = Pairs, typename Number>
  static void copy_together(const Number* at, int64_t down, int64_t deep, Word* to, int64_t apart = kRight) {
#if defined(__AVX512F__)
    for (int64_t w = 0; w < divided_up(deep, kNumbers); ++w, at += kNumbers * down) {
      const bool both = (w + 1) * kNumbers <= deep;
      for (int64_t column = 0; column < kTogether * kWide; column += 16) {
        __builtin_prefetch(at + column + 4 * kNumbers * down);
        __builtin_prefetch(at + column + (4 * kNumbers + 1) * down);
        _mm512_storeu_si512(to + column / kWide * apart + w * kWide + column % kWide, Form::of_lanes(at + column, down, both, 0xffff));
      }
    }
    const int64_t filled = divided_up(deep, kNumbers);
    for (int64_t panel = 0; panel < kTogether; ++panel)
      std::memset(to + panel * apart + filled * kWide, 0, (words(deep) - filled) * kWide * sizeof(Word));
#else
    for (int64_t panel = 0; panel < kTogether; ++panel) copy_right<Form>(at + panel * kWide, 1, down, kWide, deep, to + panel * apart);
#endif
  }

  static void multiply_apart(int64_t words, const Word* left, const Word* right, Register (*sums)[2], int64_t) {
    multiply_into(words, left, right, reinterpret_cast<float*>(sums), kWide, false);
  }

  // Asks for where sums go: a tile that is stored waits for each line that is not there.
  static void ask_for(const float* to, int64_t width) {
    for (int64_t i = 0; i < kHigh; ++i)
      for (int64_t place : {0, 16, 31}) __builtin_prefetch(to + i * width + place, 1);
  }

  // Bytes from one row of a tile to the next, of right panels and of left ones.
  static constexpr int64_t kAcross = kWide * sizeof(Word), kRow = kPairs * sizeof(Word);

  // Puts what two panels give into a matrix whose rows are `width` apart, or adds it to what lies there.
  PCP_WITH_TILES static void multiply_into(int64_t words, const Word* left, const Word* right, float* to, int64_t width, bool adds) {
    load_sums(to, width, adds);
    for (int64_t w = 0; w < words; w += kPairs, left += 2 * kTile, right += kPairs * kWide) {
      _tile_loadd(4, left, kRow);
      _tile_loadd(6, right, kAcross);
      _tile_loadd(7, right + 16, kAcross);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, left + kTile, kRow);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    store_sums(to, width);
  }

 protected:
  // Registers 0 to 3 hold 32 rows and columns of sums.
  PCP_WITH_TILES static void load_sums(const float* to, int64_t width, bool adds) {
    __asm__ volatile("" ::: "memory");  // loads of tiles do not say what they read
    const int64_t down = width * static_cast<int64_t>(sizeof(float));
    if (adds) {
      _tile_loadd(0, to, down);
      _tile_loadd(1, to + 16, down);
      _tile_loadd(2, to + 16 * width, down);
      _tile_loadd(3, to + 16 * width + 16, down);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
  }
  PCP_WITH_TILES static void store_sums(float* to, int64_t width) {
    const int64_t down = width * static_cast<int64_t>(sizeof(float));
    _tile_stored(0, to, down);
    _tile_stored(1, to + 16, down);
    _tile_stored(2, to + 16 * width, down);
    _tile_stored(3, to + 16 * width + 16, down);
  }

  template <typename Form, typename Number>
  static void copy_tile(const Number* at, int64_t lane, int64_t step, int64_t lanes, int64_t deep, Word* to) {
#if defined(__AVX512F__)
    if (step == 1 || lane == 1) {
      __m512i rows[16];
      if (step == 1)
        for (int64_t i = 0; i < std::min<int64_t>(16, lanes); ++i)
          for (int64_t line = 0; line < kNumbers; ++line) __builtin_prefetch(at + i * lane + (kNumbers * 2 + line) * 16);
      else
        for (int64_t i = 0; i < 32; ++i) __builtin_prefetch(at + (32 + i) * step);
      for (int64_t i = 0; i < 16; ++i)
        if (step == 1)
          rows[i] = i < lanes ? Form::of_lane(at + i * lane, deep) : _mm512_setzero_si512();
        else
          rows[i] = 2 * i < deep ? Form::of_lanes(at + 2 * i * step, step, 2 * i + 1 < deep, first_lanes(lanes)) : _mm512_setzero_si512();
      if (step != 1) transpose(rows);
      for (int64_t i = 0; i < 16; ++i) _mm512_store_si512(to + i * kPairs, rows[i]);
      return;
    }
#endif
    for (int64_t i = 0; i < 16; ++i)
      for (int64_t w = 0; w < kPairs; ++w)
        to[i * kPairs + w] =
            i < lanes && 2 * w < deep ? Form::word(at + i * lane + 2 * w * step, step, 2 * w + 1 < deep) : 0;
  }
};

// What is left of numbers that were rounded to bfloat16, rounded itself.
struct Rests : Pairs {
  static float rest(float x) { return x - number(rounded(x) << 16); }
  static Word word(const float* at, int64_t apart, bool both) {
    const float rests[2] = {rest(at[0]), both ? rest(at[apart]) : 0};
    return Pairs::word(rests, 1, both);
  }
#if defined(__AVX512F__)
  static __m512i of_lane(const float* at, int64_t count) {
    alignas(64) float rests[32];
    _mm512_store_ps(rests, rest(_mm512_maskz_loadu_ps(first_lanes(count), at)));
    _mm512_store_ps(rests + 16, rest(_mm512_maskz_loadu_ps(first_lanes(count - 16), at + 16)));
    return Pairs::of_lane(rests, count);
  }
  static __m512i of_lanes(const float* at, int64_t apart, bool both, __mmask16 there) {
    alignas(64) float rests[32];
    _mm512_store_ps(rests, rest(_mm512_maskz_loadu_ps(there, at)));
    if (both) _mm512_store_ps(rests + 16, rest(_mm512_maskz_loadu_ps(there, at + apart)));
    return Pairs::of_lanes(rests, 16, both, there);
  }
  static __m512 rest(__m512 x) { return _mm512_sub_ps(x, kept(x)); }
#endif
};

// Every number is taken for the sum of two of bfloat16, and of the four products of those the smallest is left out. Panels hold tiles of
// the numbers and of their rests in turn, so each tile that is loaded is multiplied by two or four others.
//
// Source: Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", 2019,
// section 3.
struct TilesOfParts : Tiles {
  static constexpr int64_t kDeep = Tiles::kDeep / 2, kBlock = kNumbers * kPairs;  // numbers of a panel, and of a tile
  static constexpr int64_t words(int64_t deep) { return 2 * Tiles::words(deep); }
  static constexpr int64_t left_size(int64_t deep) { return words(deep) * kHigh; }
  static constexpr int64_t right_size(int64_t deep) { return words(deep) * kWide; }

  static void copy_left(const float* at, int64_t lane, int64_t step, int64_t lanes, int64_t deep, Word* to) {
    for (int64_t begin = 0; begin < deep; begin += kBlock, to += 4 * kTile)
      for (int64_t half = 0; half < 2; ++half) {
        const float* from = at + begin * step + 16 * half * lane;
        copy_tile<Pairs>(from, lane, step, lanes - 16 * half, deep - begin, to + half * kTile);
        copy_tile<Rests>(from, lane, step, lanes - 16 * half, deep - begin, to + (2 + half) * kTile);
      }
  }
  static void copy_right(const float* at, int64_t lane, int64_t step, int64_t lanes, int64_t deep, Word* to) {
    for (int64_t begin = 0; begin < deep; begin += kBlock, at += kBlock * step, to += 2 * kPairs * kWide) {
      Tiles::copy_right<Pairs>(at, lane, step, lanes, std::min(kBlock, deep - begin), to);
      Tiles::copy_right<Rests>(at, lane, step, lanes, std::min(kBlock, deep - begin), to + kPairs * kWide);
    }
  }
  static void copy_together(const float* at, int64_t down, int64_t deep, Word* to) {
    for (int64_t begin = 0; begin < deep; begin += kBlock, at += kBlock * down, to += 2 * kPairs * kWide) {
      Tiles::copy_together<Pairs>(at, down, std::min(kBlock, deep - begin), to, kRight);
      Tiles::copy_together<Rests>(at, down, std::min(kBlock, deep - begin), to + kPairs * kWide, kRight);
    }
  }
  static void multiply_apart(int64_t words, const Word* left, const Word* right, Register (*sums)[2], int64_t) {
    multiply_into(words, left, right, reinterpret_cast<float*>(sums), kWide, false);
  }
  PCP_WITH_TILES static void multiply_into(int64_t words, const Word* left, const Word* right, float* to, int64_t width, bool adds) {
    load_sums(to, width, adds);
    for (int64_t w = 0; w < words; w += 2 * kPairs, left += 4 * kTile, right += 2 * kPairs * kWide) {
      const Word* rests = right + kPairs * kWide;
      _tile_loadd(4, left + 2 * kTile, kRow);
      _tile_loadd(6, right, kAcross);
      _tile_loadd(7, right + 16, kAcross);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, left + 3 * kTile, kRow);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      _tile_loadd(4, left, kRow);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, left + kTile, kRow);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      _tile_loadd(6, rests, kAcross);
      _tile_loadd(7, rests + 16, kAcross);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    store_sums(to, width);
  }
};

}  // namespace pcp
#endif

namespace pcp {

// The form of numbers that may be taken for sums of two of bfloat16, where tiles make three products of those sooner than one of float32.
struct InParts : Singles {};

// Does something by tiles where there are any and `Form` is of their numbers, else by vector registers; it is given which.
template <typename Form, typename Work>
auto by_panels(const Work& work) {
#if defined(PCP_TILES)
  if constexpr (std::is_same_v<Form, Pairs>)
    if (has_tiles()) return work(Tiles());
  if constexpr (std::is_same_v<Form, InParts>)
    if (has_tiles()) return work(TilesOfParts());
#endif
  return work(Vectors<Form>());
}

}  // namespace pcp
