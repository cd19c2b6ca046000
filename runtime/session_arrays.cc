#include "runtime/session_arrays.h"

#include <cstring>

namespace xlad::runtime {

using tensor::Array;

void SessionArrays::Put(int64_t array, std::shared_ptr<const Array> contents) {
  const std::lock_guard lock(mutex_);
  Entry& entry = arrays_[array];
  bytes_ += contents->shape().bytes() - entry.bytes;
  entry.bytes = contents->shape().bytes();
  entry.shape = contents->shape();
  entry.complete = std::move(contents);
}

void SessionArrays::Expect(int64_t array, const tensor::Shape& shape) {
  auto whole = std::make_shared<Array>(shape);
  const std::lock_guard lock(mutex_);
  Entry& entry = arrays_[array];
  bytes_ += shape.bytes() - entry.bytes;
  entry = {shape, nullptr, std::move(whole), {}, shape.elements(), shape.bytes()};
  if (entry.missing == 0) entry.complete = entry.arriving;
}

absl::StatusOr<int64_t> SessionArrays::BytesOf(int64_t array, const tensor::Box& box) {
  const std::lock_guard lock(mutex_);
  const auto found = arrays_.find(array);
  if (found == arrays_.end()) return absl::NotFoundError(absl::StrCat("array ", array, " is not expected here"));
  if (!tensor::IsInside(box, found->second.shape)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found box ", box.ToString(), ", expected a part of ", found->second.shape.ToString()));
  }
  return tensor::Shape{found->second.shape.type, box.sizes()}.bytes();
}

void SessionArrays::Add(int64_t array, const tensor::Box& box, absl::Span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = arrays_.find(array);
  if (found == arrays_.end() || found->second.complete != nullptr) return;
  Entry& entry = found->second;
  const tensor::Shape part{entry.shape.type, box.sizes()};
  XLAD_CHECK(std::ssize(bytes) == part.bytes()) << "box " << box.ToString() << " with " << bytes.size() << " bytes";
  if (!entry.boxes.insert(box.ToString()).second) return;
  Array values(part);
  if (!bytes.empty()) std::memcpy(values.bytes().data(), bytes.data(), bytes.size());
  tensor::InsertBox(values, box, entry.arriving.get());
  entry.missing -= part.elements();
  if (entry.missing > 0) return;
  entry.complete = entry.arriving;
  changed_.notify_all();
}

absl::StatusOr<std::shared_ptr<const Array>> SessionArrays::Wait(int64_t array) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (!ended_.ok()) return ended_;
    const auto found = arrays_.find(array);
    if (found == arrays_.end()) {
      return absl::NotFoundError(absl::StrCat("the first worker of the session does not have all of array ", array));
    }
    if (found->second.complete != nullptr) return found->second.complete;
    changed_.wait(lock);
  }
}

void SessionArrays::Drop(const std::vector<int64_t>& arrays) {
  const std::lock_guard lock(mutex_);
  for (const int64_t array : arrays) {
    const auto found = arrays_.find(array);
    if (found == arrays_.end()) continue;
    bytes_ -= found->second.bytes;
    arrays_.erase(found);
  }
  changed_.notify_all();
}

void SessionArrays::End(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  ended_ = status;
  arrays_.clear();
  bytes_ = 0;
  changed_.notify_all();
}

}  // namespace xlad::runtime
