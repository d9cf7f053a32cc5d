// What handlers ask of the arrays that they are given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace pcp {

using Array = xla::ffi::Buffer<xla::ffi::F32>;
using Result = xla::ffi::ResultBuffer<xla::ffi::F32>;
using Numbers = xla::ffi::Span<const int64_t>;

inline bool is_shape(const Array& array, std::initializer_list<int64_t> sizes) {
  const auto dims = array.dimensions();
  return dims.size() == sizes.size() && std::equal(dims.begin(), dims.end(), sizes.begin());
}

inline std::string shape_of(const Array& array) {
  std::string text = "[";
  for (int64_t size : array.dimensions()) text += (text.size() > 1 ? "," : "") + std::to_string(size);
  return text + "]";
}

inline xla::ffi::Error refused_by(const char* kernel, const std::string& words) {
  return xla::ffi::Error(xla::ffi::ErrorCode::kInvalidArgument, std::string("pcp ") + kernel + ": " + words);
}

// What is wrong with strides by which an array of so many elements is read or written; empty if all of them are within it.
inline std::string unreadable(const char* name, size_t elements, const std::vector<int64_t>& sizes, Numbers strides) {
  int64_t last = 0;
  if (strides.size() != sizes.size())
    return std::string(name) + " has " + std::to_string(strides.size()) + " strides; expected " + std::to_string(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t far;
    if (strides[i] < 0 || __builtin_mul_overflow(strides[i], sizes[i] - 1, &far) || __builtin_add_overflow(last, far, &last))
      return std::string("a stride of ") + name + " is negative or too large";
  }
  if (last >= static_cast<int64_t>(elements))
    return std::string(name) + " has " + std::to_string(elements) + " elements; its strides reach element " + std::to_string(last);
  return "";
}

// A handler's parameters as its function has them: pools of threads, arrays and results by their types, and numbers by names, which stand
// in the order of their parameters.
struct Named {
  std::initializer_list<const char*> names;

  template <typename... Parameters>
  auto To(xla::ffi::Error (*handler)(Parameters...)) const {
    return bound<decltype(handler), Parameters...>(handler, xla::ffi::Ffi::Bind(), names.begin());
  }

 private:
  template <typename Handler, typename First, typename... Rest, typename Binding>
  static auto bound(Handler handler, Binding&& binding, const char* const* name) {
    namespace ffi = xla::ffi;
    const auto with = [&](auto&& next, int taken) {
      if constexpr (sizeof...(Rest) == 0)
        return std::move(next).To(handler);
      else
        return bound<Handler, Rest...>(handler, std::move(next), name + taken);
    };
    if constexpr (std::is_same_v<First, ffi::ThreadPool>)
      return with(std::move(binding).template Ctx<First>(), 0);
    else if constexpr (std::is_same_v<First, ffi::RemainingArgs>)
      return with(std::move(binding).RemainingArgs(), 0);
    else if constexpr (std::is_same_v<First, ffi::RemainingRets>)
      return with(std::move(binding).RemainingRets(), 0);
    else if constexpr (!std::is_void_v<typename ffi::ArgBinding<First>::Arg>)
      return with(std::move(binding).template Arg<First>(), 0);
    else if constexpr (!std::is_void_v<typename ffi::RetBinding<First>::Ret>)
      return with(std::move(binding).template Ret<typename ffi::RetBinding<First>::Ret>(), 0);
    else if constexpr (!std::is_void_v<typename ffi::AttrsBinding<First>::Attrs>)
      return with(std::move(binding).template Attrs<First>(), 0);
    else
      return with(std::move(binding).template Attr<First>(*name), 1);
  }
};

}  // namespace pcp

// Defines the symbol that XLA calls: `PCP_HANDLER(pcp_norm, pcp::norm, "epsilon", "centred")`.
#define PCP_HANDLER(name, function, ...) XLA_FFI_DEFINE_HANDLER_SYMBOL(name, function, (pcp::Named{{__VA_ARGS__}}))
