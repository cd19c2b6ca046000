// A bump allocator: memory that only grows and is freed all at once, for objects that live as long as their owner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"

namespace xlad::hlo {

class Bump {
 public:
  // Returns memory that is aligned for max_align_t. The caller runs the destructors of the objects in it.
  void* Take(size_t bytes) {
    bytes = (bytes + alignof(std::max_align_t) - 1) / alignof(std::max_align_t) * alignof(std::max_align_t);
    return TakeUnaligned(bytes);
  }
  // Returns a copy of `text` that is valid as long as this allocator. Do not use Take and Keep on the same object,
  // because the copy is not padded, and memory from a later Take would not be aligned.
  absl::string_view Keep(absl::string_view text) {
    if (text.empty()) return {};
    char* const copy = TakeUnaligned(text.size());
    std::memcpy(copy, text.data(), text.size());
    return {copy, text.size()};
  }

 private:
  static constexpr size_t kFirstBytes = size_t{1} << 12, kMaxBytes = size_t{1} << 18;

  char* TakeUnaligned(size_t bytes) {
    if (bytes > left_) {
      left_ = std::max(bytes, next_bytes_);
      next_bytes_ = std::min(2 * next_bytes_, kMaxBytes);
      at_ = blocks_.emplace_back(new char[left_]).get();
    }
    char* const taken = at_;
    at_ += bytes;
    left_ -= bytes;
    return taken;
  }

  std::vector<std::unique_ptr<char[]>> blocks_;
  char* at_ = nullptr;
  size_t left_ = 0, next_bytes_ = kFirstBytes;
};

}  // namespace xlad::hlo
