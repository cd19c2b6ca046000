// Objects that exist until the process ends, such as the functions of a library that is never unloaded.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace xlad {

// Takes ownership of an object, never destroys it, and returns it. The objects can be reached until the process ends,
// so that a leak checker does not report them. Thread-safe.
template <typename T>
const T* KeepForever(std::unique_ptr<T> object) {
  static std::mutex mutex;
  static auto* const objects = new std::vector<std::unique_ptr<T>>;
  const std::lock_guard<std::mutex> lock(mutex);
  objects->push_back(std::move(object));
  return objects->back().get();
}

}  // namespace xlad
