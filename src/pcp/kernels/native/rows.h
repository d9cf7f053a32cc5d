// What row-wise kernels share: sixteen float32 numbers at once, and work divided among the threads of XLA's own pool.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>

#include "xla/ffi/api/ffi.h"

namespace pcp {

// The compiler makes of this whatever the processor has: one register of AVX-512, two of AVX2, four of SSE or NEON. Sums are
// kept in sixteen lanes whatever that is, so their order is the same everywhere.
constexpr int64_t kLanes = 16;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));

inline Lanes load(const float* at) {
  Lanes found;
  std::memcpy(&found, at, sizeof found);
  return found;
}

inline void store(float* at, Lanes lanes) { std::memcpy(at, &lanes, sizeof lanes); }

// The lanes from `at` on, of which only `count` are there; the others are 0.
inline Lanes load_part(const float* at, int64_t count) {
  Lanes found = {};
  std::memcpy(&found, at, count * sizeof(float));
  return found;
}

// The same of any vector, of which as many are read or stored as there are, if `count` is more.
template <typename V>
inline V part(const float* at, int64_t count) {
  V found = {};
  if (count >= static_cast<int64_t>(sizeof(V) / sizeof(float)))
    std::memcpy(&found, at, sizeof found);
  else
    std::memcpy(&found, at, count * sizeof(float));
  return found;
}

template <typename V>
inline void put(float* at, V lanes, int64_t count) {
  if (count >= static_cast<int64_t>(sizeof(V) / sizeof(float)))
    std::memcpy(at, &lanes, sizeof lanes);
  else
    std::memcpy(at, &lanes, count * sizeof(float));
}

// Upper halves are added to lower ones: in whole registers, as compilers make a detour through memory of a loop over lanes.
inline float sum(Lanes lanes) {
  typedef float Eight __attribute__((vector_size(32)));
  typedef float Four __attribute__((vector_size(16)));
  Eight halves[2];
  Four quarters[2];
  std::memcpy(halves, &lanes, sizeof halves);
  halves[0] += halves[1];
  std::memcpy(quarters, halves, sizeof quarters);
  quarters[0] += quarters[1];
  return (quarters[0][0] + quarters[0][2]) + (quarters[0][1] + quarters[0][3]);
}

// Rows of a part of the work at least: about ten microseconds.
inline int64_t rows_at_once(int64_t width) { return std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, width)); }

constexpr int kSpins = 500;  // at most some 20 microseconds

inline void spin_once() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// What is done with the numbers from one to another: a function that outlives this. It is of one type whatever it does, so what it is
// given to is compiled once, and what it does is not compiled for every place where it may be called.
class RangeWork {
 public:
  template <typename Function>
  RangeWork(const Function& function) : function_(&function), call_(&call<Function>) {}
  void operator()(int64_t first, int64_t last) const { call_(function_, first, last); }

 private:
  template <typename Function>
  static void call(const void* function, int64_t first, int64_t last) {
    (*static_cast<const Function*>(function))(first, last);
  }
  const void* function_;
  void (*call_)(const void*, int64_t, int64_t);
};

// Calls `work(first, last)` for parts of [0, count) of at most `grain`, on the calling thread and on those of XLA's pool.
//
// A handler runs on a thread of that pool itself, so it must never wait for a task that has not begun: if all threads did, none
// would be left to begin it. Here the caller takes parts too, and waits only for parts that another thread is at.
inline void parallel_for(xla::ffi::ThreadPool& pool, int64_t count, int64_t grain, RangeWork work) {
  const int64_t parts = grain > 0 ? (count + grain - 1) / grain : 0;
  const int64_t helpers = std::min<int64_t>(pool.num_threads(), parts) - 1;
  if (helpers <= 0) {
    if (count > 0) work(int64_t{0}, count);
    return;
  }
  struct State {
    std::atomic<int64_t> next{0};
    std::mutex mutex;
    std::condition_variable finished;
    std::atomic<int64_t> done{0};
  };
  auto state = std::make_shared<State>();  // a task that begins late outlives this call: it finds no part, and touches nothing
  auto take = [state, parts, count, grain, work] {
    for (int64_t part; (part = state->next.fetch_add(1)) < parts;) {
      work(part * grain, std::min(count, (part + 1) * grain));
      if (state->done.fetch_add(1) + 1 < parts) continue;
      std::lock_guard<std::mutex> lock(state->mutex);
      state->finished.notify_all();
    }
  };
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule(std::function<void()>(take));
  take();
  // Another thread is seldom at its last part for long, and sleeping takes longer than a part of a small work does.
  for (int i = 0; i < kSpins && state->done < parts; ++i) spin_once();
  std::unique_lock<std::mutex> lock(state->mutex);
  state->finished.wait(lock, [&] { return state->done == parts; });
}

}  // namespace pcp
