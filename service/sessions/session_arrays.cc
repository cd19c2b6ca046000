#include "service/sessions/session_arrays.h"

#include "tensor/wire.h"

namespace xlad::service {

using tensor::Array;

void SessionArrays::Put(const std::string& session, int64_t array, const tensor::Shape& shape,
                        const std::string& bytes) {
  auto stored = std::make_shared<Array>(shape);
  XLAD_CHECK(stored->bytes().size() == bytes.size())
      << "an array of " << shape.ToString() << " with " << bytes.size() << " bytes";
  if (!bytes.empty()) std::memcpy(stored->bytes().data(), bytes.data(), bytes.size());
  const std::lock_guard lock(mutex_);
  arrays_[{session, array}] = {std::move(stored), {}, 0};
}

void SessionArrays::Expect(const std::string& session, int64_t array, const tensor::Shape& shape) {
  const std::lock_guard lock(mutex_);
  arrays_[{session, array}] = {std::make_shared<Array>(shape), {}, shape.elements()};
}

absl::Status SessionArrays::Add(const std::string& session, int64_t array, const tensor::Box& box,
                                const std::string& bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = arrays_.find({session, array});
  if (found == arrays_.end()) return absl::OkStatus();
  Entry& entry = found->second;
  const tensor::Shape part{entry.array->shape().type, box.sizes()};
  if (!tensor::IsInside(box, entry.array->shape()) || std::ssize(bytes) != part.bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("found box ", box.ToString(), " with ", bytes.size(),
                                                   " bytes, expected a part of ", entry.array->shape().ToString()));
  }
  if (!entry.boxes.insert(box.ToString()).second) return absl::OkStatus();
  Array values(part);
  if (!bytes.empty()) std::memcpy(values.bytes().data(), bytes.data(), bytes.size());
  tensor::InsertBox(values, box, entry.array.get());
  entry.missing -= part.elements();
  if (entry.missing <= 0) changed_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Array>> SessionArrays::Wait(const std::string& session, int64_t array) {
  std::unique_lock lock(mutex_);
  ++waiting_[session];
  absl::StatusOr<std::shared_ptr<const Array>> result;
  changed_.wait(lock, [&] {
    const auto found = arrays_.find({session, array});
    if (stopping_) {
      result = absl::UnavailableError("the coordinator is stopping");
    } else if (const auto ended = endings_.find(session); ended != endings_.end()) {
      result = absl::AbortedError(absl::StrCat("session ", session, " has ended: ", ended->second));
    } else if (found == arrays_.end()) {
      result = absl::NotFoundError(absl::StrCat("session ", session, ": the coordinator has no copy of array ", array));
    } else if (found->second.missing > 0) {
      return false;
    } else {
      result = found->second.array;
    }
    return true;
  });
  if (--waiting_[session] == 0) {
    waiting_.erase(session);
    endings_.erase(session);
  }
  return result;
}

void SessionArrays::Drop(const std::string& session, const std::vector<int64_t>& arrays) {
  const std::lock_guard lock(mutex_);
  for (const int64_t array : arrays) arrays_.erase({session, array});
}

void SessionArrays::End(const std::string& session, const std::string& why) {
  const std::lock_guard lock(mutex_);
  std::erase_if(arrays_, [&](const auto& entry) { return entry.first.first == session; });
  if (waiting_.contains(session)) endings_[session] = why;
  changed_.notify_all();
}

void SessionArrays::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

}  // namespace xlad::service
