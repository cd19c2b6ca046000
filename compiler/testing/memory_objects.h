// A cache of objects in memory, for tests.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "compiler/codegen/object_cache.h"

namespace xlad::compiler {

// Thread-safe.
class MemoryObjects : public ObjectCache {
 public:
  std::optional<std::string> Find(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(key);
    return found == objects_.end() ? std::nullopt : std::optional<std::string>(found->second);
  }
  void Add(const std::string& key, absl::string_view object) override {
    const std::lock_guard lock(mutex_);
    objects_.emplace(key, object);
  }
  // The number of objects.
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return objects_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> objects_;
};

}  // namespace xlad::compiler
