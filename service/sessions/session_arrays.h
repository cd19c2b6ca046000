// The coordinator's copies of session arrays: arrays that clients upload, and arrays that workers send so that a client
// or another layout can read them.
//
// Thread-safe. Arrays are row-major in host memory and are identified by session id and array number.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tensor/box.h"

namespace xlad::service {

class SessionArrays {
 public:
  // Stores a complete array. `bytes` must have the size of `shape`.
  void Put(const std::string& session, int64_t array, const tensor::Shape& shape, const std::string& bytes);
  // Creates an array whose elements arrive by Add.
  void Expect(const std::string& session, int64_t array, const tensor::Shape& shape);
  // Stores one box of an expected array. A box of an unknown array and a box that was stored before are ignored,
  // because workers send again after they reconnect.
  absl::Status Add(const std::string& session, int64_t array, const tensor::Box& box, const std::string& bytes);
  // Waits until all elements of the array have arrived. Aborted if the session ends first, NotFound if the coordinator
  // has no copy of the array.
  absl::StatusOr<std::shared_ptr<const tensor::Array>> Wait(const std::string& session, int64_t array);
  void Drop(const std::string& session, const std::vector<int64_t>& arrays);
  // Drops all arrays of a session. Pending calls of Wait return Aborted with `why`.
  void End(const std::string& session, const std::string& why);
  // Makes pending and later calls of Wait return Unavailable.
  void Stop();

 private:
  struct Entry {
    std::shared_ptr<tensor::Array> array;
    std::set<std::string> boxes;  // Boxes that have arrived, as text.
    int64_t missing = 0;          // The number of elements that have not arrived.
  };
  using Key = std::pair<std::string, int64_t>;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Entry> arrays_;
  std::map<std::string, int> waiting_;          // Pending calls of Wait by session.
  std::map<std::string, std::string> endings_;  // By ended session with pending calls: why it ended.
  bool stopping_ = false;
};

}  // namespace xlad::service
