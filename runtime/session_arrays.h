// The arrays of one session that its first worker stores as a whole. Clients upload them, or the workers send them so
// that a client can read them or the workers can divide them in another layout.
//
// Thread-safe. Arrays are row-major in host memory and are identified by their number.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "tensor/box.h"

namespace xlad::runtime {

class SessionArrays {
 public:
  // Stores a complete array.
  void Put(int64_t array, std::shared_ptr<const tensor::Array> contents);
  // Creates an array whose elements will be stored by Add.
  void Expect(int64_t array, const tensor::Shape& shape);
  // The size in bytes of a box of an expected array. NotFound if there is no such array, InvalidArgument if it has no
  // such box.
  absl::StatusOr<int64_t> BytesOf(int64_t array, const tensor::Box& box);
  // Stores one box of an expected array. The number of bytes must be BytesOf(array, box). A box of an unknown array and
  // a box that was stored before are ignored, because workers send boxes again after they reconnect.
  void Add(int64_t array, const tensor::Box& box, absl::Span<const std::byte> bytes);
  // Waits until all elements of the array have arrived. Returns the status of End if the session ends first, and
  // NotFound if there is no such array.
  absl::StatusOr<std::shared_ptr<const tensor::Array>> Wait(int64_t array);
  void Drop(const std::vector<int64_t>& arrays);
  // The total size in bytes of all arrays, including those whose elements are still arriving.
  int64_t bytes() const { return bytes_; }
  // Drops all arrays. Pending and later calls of Wait return `status`, which is not OK.
  void End(const absl::Status& status);

 private:
  struct Entry {
    tensor::Shape shape;
    std::shared_ptr<const tensor::Array> complete;  // Null while elements are missing.
    std::shared_ptr<tensor::Array> arriving;
    std::set<std::string> boxes;  // Boxes that have arrived, as text.
    int64_t missing = 0;          // The number of elements that have not arrived.
    int64_t bytes = 0;            // The size of the array that is counted in bytes_.
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Entry> arrays_;
  std::atomic<int64_t> bytes_ = 0;
  absl::Status ended_;
};

}  // namespace xlad::runtime
