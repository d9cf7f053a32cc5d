// What handlers ask of the arrays that they are given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "xla/ffi/api/ffi.h"

namespace pcp {

using Array = xla::ffi::Buffer<xla::ffi::F32>;
using Result = xla::ffi::ResultBuffer<xla::ffi::F32>;

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

}  // namespace pcp
