// Memory for intermediate values that is kept between calls: fresh memory costs a page fault for every page that is touched.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <vector>

namespace pcp {

// Asks for huge pages in some memory that is about to be written, and in what lies beside it in the same huge pages. Memory that was
// never touched then costs one page fault for 2 MiB instead of 512; memory that is there already stays as it is. It is advice, so
// nothing else changes for whoever owns what lies beside it.
inline void ask_for_huge_pages(void* at, int64_t bytes) {
#if defined(MADV_HUGEPAGE)
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  if (bytes < static_cast<int64_t>(kHuge) / 2) return;
  const uintptr_t from = reinterpret_cast<uintptr_t>(at), first = from / kHuge * kHuge;
  const uintptr_t last = (from + static_cast<uintptr_t>(bytes) + kHuge - 1) / kHuge * kHuge;
  madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

// The same of results of a handler.
template <typename... Results>
void ask_for_huge_pages_of(Results&... results) {
  (ask_for_huge_pages(results->typed_data(), static_cast<int64_t>(results->size_bytes())), ...);
}

// A piece of memory, at a multiple of 64 bytes; it goes back to where it came from. Empty if there is no memory.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) {
    const int64_t unit = bytes >= kHuge ? kHuge : 4096, size = std::max<int64_t>(1, (bytes + unit - 1) / unit) * unit;
    if (!take(size)) allocate(size, unit);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (!piece_.at) return;
    std::lock_guard<std::mutex> lock(mutex());
    if (total() + piece_.bytes <= kKept) {
      total() += piece_.bytes;
      kept().push_back(piece_);
    } else {
      std::free(piece_.at);
    }
  }

  template <typename T>
  T* as() const {
    return static_cast<T*>(piece_.at);
  }

 private:
  struct Piece {
    void* at = nullptr;
    int64_t bytes = 0;
  };
  static constexpr int64_t kKept = int64_t{256} << 20, kHuge = int64_t{2} << 20;

  // These live until the process ends, because threads of XLA's pool may.
  static std::mutex& mutex() { return *new_once<std::mutex>(); }
  static std::vector<Piece>& kept() { return *new_once<std::vector<Piece>>(); }
  static int64_t& total() { return *new_once<int64_t>(); }
  template <typename T>
  static T* new_once() {
    static T* const made = new T();
    return made;
  }

  // The smallest piece that is large enough and not four times as large. Sizes are whole pages: of what is smaller, every piece that is
  // kept would be too large for the next call, and one more would be kept with each.
  bool take(int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex());
    size_t best = kept().size();
    for (size_t i = 0; i < kept().size(); ++i) {
      const int64_t has = kept()[i].bytes;
      if (has >= bytes && has <= 4 * bytes && (best == kept().size() || has < kept()[best].bytes)) best = i;
    }
    if (best == kept().size()) return false;
    piece_ = kept()[best];
    kept()[best] = kept().back();
    kept().pop_back();
    total() -= piece_.bytes;
    return true;
  }

  void allocate(int64_t size, int64_t unit) {
    void* at = std::aligned_alloc(unit, size);
    if (!at) return;
    ask_for_huge_pages(at, size);
    piece_ = {at, size};
  }

  Piece piece_;
};

// Pieces of one piece of memory, each at a multiple of 64 bytes.
class Pieces {
 public:
  template <typename T>
  size_t add(int64_t count) {
    const size_t start = bytes_;
    bytes_ += (count * sizeof(T) + 63) / 64 * 64;
    return start;
  }
  bool take() {
    scratch_.emplace(static_cast<int64_t>(bytes_));
    return scratch_->as<char>();
  }
  template <typename T>
  T* at(size_t start) const { return reinterpret_cast<T*>(scratch_->as<char>() + start); }

 private:
  size_t bytes_ = 0;
  std::optional<Scratch> scratch_;
};

}  // namespace pcp
