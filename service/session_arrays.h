// The coordinator's copies of the arrays of sessions: what clients upload, and what workers send for someone to read.
//
// Thread-safe.
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
  // A whole array; `bytes` has exactly its size.
  void Put(const std::string& session, int64_t array, const tensor::Shape& shape, const std::string& bytes);
  // An array that comes box by box.
  void Expect(const std::string& session, int64_t array, const tensor::Shape& shape);
  // A box of it. One that nobody expects, or that came before, is passed over: a worker that reconnects sends again.
  absl::Status Add(const std::string& session, int64_t array, const tensor::Box& box, const std::string& bytes);
  // Waits until the array is whole. Aborted where the session ends before, NotFound where the array is not there.
  absl::StatusOr<std::shared_ptr<const tensor::Array>> Wait(const std::string& session, int64_t array);
  void Drop(const std::string& session, const std::vector<int64_t>& arrays);
  // Drops all arrays of a session; who waits for one hears why.
  void End(const std::string& session, const std::string& why);
  // Nobody waits any more.
  void Stop();

 private:
  struct Entry {
    std::shared_ptr<tensor::Array> array;
    std::set<std::string> boxes;  // That have come.
    int64_t missing = 0;          // Elements.
  };
  using Key = std::pair<std::string, int64_t>;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Entry> arrays_;
  std::map<std::string, int> waiting_;          // Readers by session.
  std::map<std::string, std::string> endings_;  // Why sessions ended that have readers still.
  bool stopping_ = false;
};

}  // namespace xlad::service
