#include "worker/grpc_bounded.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "proto/parsed_size.h"

namespace xlad::worker {
namespace {

constexpr int64_t kMaxParsedBytesOfAll = 512 << 20;

std::atomic<int64_t> parsed_bytes_of_all = 0;

}  // namespace

absl::Status ParsedMemory::Parse(grpc::ByteBuffer* buffer, google::protobuf::MessageLite* message) {
  const size_t size = buffer->Length();
  grpc::Slice slice;
  const bool is_read = size == 0 || buffer->DumpToSingleSlice(&slice).ok();
  buffer->Clear();
  if (!is_read) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", size, " bytes that cannot be read as a ", message->GetTypeName()));
  }
  const ParseLimits limits{.reserve = [this](int64_t bytes) { return Reserve(bytes); }};
  return ParseBounded({reinterpret_cast<const char*>(slice.begin()), slice.size()}, limits, message);
}

absl::Status ParsedMemory::Reserve(int64_t bytes) {
  int64_t all = parsed_bytes_of_all;
  do {
    if (all + bytes > kMaxParsedBytesOfAll) {
      return absl::UnavailableError(absl::StrCat("found a message that takes ", bytes,
                                                 " bytes of memory while other large messages of the session are being "
                                                 "handled; try again in a moment"));
    }
  } while (!parsed_bytes_of_all.compare_exchange_weak(all, all + bytes));
  bytes_ = bytes;
  return absl::OkStatus();
}

void ParsedMemory::Release() {
  parsed_bytes_of_all -= bytes_;
  bytes_ = 0;
}

}  // namespace xlad::worker
