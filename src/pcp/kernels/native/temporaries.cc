// Large blocks that one library of the process frees are kept for its next request of about that size, instead of going back to the
// system, which would hand out new pages and fill them with zeros.
//
// The library is told by its own table of functions that it calls from others: there `malloc`, `posix_memalign` and `free` are replaced.
// Every block is one of the C library's, so whoever frees it may. As much of what is kept goes back before new memory is asked for, so a
// process takes no more than without, but for what others allocate meanwhile.
//
// Source: "System V Application Binary Interface", 4.3 of the generic part, chapter 5: dynamic linking.

#include <cstdint>

#if defined(__GLIBC__) && defined(__LP64__)
#include <elf.h>
#include <link.h>
#include <malloc.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "scratch.h"

namespace pcp {
namespace {

constexpr size_t kLeast = size_t{4} << 20;  // of a block that is kept, in bytes; the C library keeps smaller ones itself
constexpr size_t kSlack = 4;                // a block may be larger than what was asked for by a part of this

struct Block {
  void* at;
  size_t bytes;
};

// It lives until the process ends, because threads of the library may.
struct Kept {
  std::mutex mutex;
  std::vector<Block> blocks;
  size_t bytes = 0, most = 0;

  // A block that fits, which is not kept any more; null if there is none.
  void* taken(size_t unit, size_t bytes_wanted) {
    std::lock_guard<std::mutex> lock(mutex);
    size_t best = blocks.size();
    for (size_t i = 0; i < blocks.size(); ++i)
      if (blocks[i].bytes >= bytes_wanted && blocks[i].bytes - bytes_wanted <= bytes_wanted / kSlack &&
          reinterpret_cast<uintptr_t>(blocks[i].at) % unit == 0 && (best == blocks.size() || blocks[i].bytes < blocks[best].bytes))
        best = i;
    if (best == blocks.size()) return nullptr;
    void* const found = blocks[best].at;
    bytes -= blocks[best].bytes;
    blocks.erase(blocks.begin() + static_cast<int64_t>(best));
    return found;
  }

  bool put(void* at) {
    const size_t size = malloc_usable_size(at);
    if (size < kLeast) return false;
    std::lock_guard<std::mutex> lock(mutex);
    if (size > most || bytes > most - size) return false;
    blocks.push_back({at, size});
    bytes += size;
    return true;
  }

  // So many bytes, or all that there are; what was freed first goes first.
  void give_back(size_t wanted) {
    std::lock_guard<std::mutex> lock(mutex);
    size_t count = 0;
    for (size_t freed = 0; count < blocks.size() && freed < wanted; ++count) {
      freed += blocks[count].bytes, bytes -= blocks[count].bytes;
      std::free(blocks[count].at);
    }
    blocks.erase(blocks.begin(), blocks.begin() + static_cast<int64_t>(count));
  }
};

Kept& kept() {
  static Kept* const made = new Kept();
  return *made;
}

int allocate(void** to, size_t unit, size_t bytes) {
  if (bytes < kLeast || !unit) return posix_memalign(to, unit, bytes);
  if (void* found = kept().taken(unit, bytes)) return *to = found, 0;
  kept().give_back(bytes);
  const int failed = posix_memalign(to, unit, bytes);
  if (!failed) ask_for_huge_pages(*to, static_cast<int64_t>(bytes));
  return failed;
}

void* plain(size_t bytes) {
  if (bytes < kLeast) return std::malloc(bytes);
  void* at = nullptr;
  const int failed = allocate(&at, alignof(std::max_align_t), bytes);
  if (failed) errno = failed;
  return failed ? nullptr : at;
}

void release(void* at) {
  if (at && !kept().put(at)) std::free(at);
}

struct Replaced {
  const char* name;
  void* by;
};
const Replaced kReplaced[] = {{"malloc", reinterpret_cast<void*>(&plain)},
                              {"posix_memalign", reinterpret_cast<void*>(&allocate)},
                              {"free", reinterpret_cast<void*>(&release)}};

// Replaces the functions where a loaded library calls them; how many it found goes into `count`. A table that can only be read is left
// as it is.
int replace(dl_phdr_info* info, size_t, void* count) {
  const auto* file = std::strrchr(info->dlpi_name, '/');
  if (!file || std::strcmp(file + 1, "libjax_common.so")) return 0;
  const ElfW(Sym)* symbols = nullptr;
  const ElfW(Rela)* calls = nullptr;
  const char* strings = nullptr;
  size_t bytes = 0;
  uintptr_t fixed = 0, end = 0;  // what the loader makes read-only
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type == PT_GNU_RELRO) fixed = info->dlpi_addr + part.p_vaddr, end = fixed + part.p_memsz;
    if (part.p_type != PT_DYNAMIC) continue;
    for (auto* each = reinterpret_cast<ElfW(Dyn)*>(info->dlpi_addr + part.p_vaddr); each->d_tag != DT_NULL; ++each) {
      if (each->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(each->d_un.d_ptr);
      if (each->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(each->d_un.d_ptr);
      if (each->d_tag == DT_JMPREL) calls = reinterpret_cast<const ElfW(Rela)*>(each->d_un.d_ptr);
      if (each->d_tag == DT_PLTRELSZ) bytes = each->d_un.d_val;
    }
  }
  if (!symbols || !strings || !calls) return 1;
  for (size_t i = 0; i < bytes / sizeof *calls; ++i) {
    const uintptr_t slot = info->dlpi_addr + calls[i].r_offset;
    if (slot >= fixed && slot < end) continue;
    for (const Replaced& each : kReplaced)
      if (!std::strcmp(strings + symbols[ELF64_R_SYM(calls[i].r_info)].st_name, each.name)) {
        __atomic_store_n(reinterpret_cast<void**>(slot), each.by, __ATOMIC_RELEASE);
        ++*static_cast<int64_t*>(count);
      }
  }
  return 1;
}

}  // namespace
}  // namespace pcp

// Keeps at most so many bytes that XLA frees, for its next requests; returns how many of its functions were replaced.
extern "C" int64_t pcp_keep_temporaries(int64_t most) {
  {
    std::lock_guard<std::mutex> lock(pcp::kept().mutex);
    pcp::kept().most = static_cast<size_t>(most);
  }
  int64_t count = 0;
  dl_iterate_phdr(pcp::replace, &count);
  return count;
}

extern "C" void pcp_give_back_temporaries() { pcp::kept().give_back(SIZE_MAX); }
#else
extern "C" int64_t pcp_keep_temporaries(int64_t) { return 0; }
extern "C" void pcp_give_back_temporaries() {}
#endif
