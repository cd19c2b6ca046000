#include "collectives/exec/transports/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::collectives {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are written in memory order");

constexpr uint32_t kMaxBlockBytes = 64 * 1024;

}  // namespace

absl::Status CheckPathFrame(const FrameHead& head) {
  if (head.magic == FrameHead::kFrameMagic && head.channel < kMaxChannels &&
      (head.kind == FrameKind::kMessage || head.kind == FrameKind::kReleased)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      "found the head of a frame with a wrong magic number, kind or channel, expected a message or a release");
}

std::string AbortFrame(const Failure& failure) {
  const std::string reason = absl::StrCat(failure.suspect_worker, "\n", failure.status.message());
  FrameHead head;
  head.kind = FrameKind::kAbort;
  head.count = static_cast<uint32_t>(failure.status.code());
  head.bytes = std::min<uint64_t>(reason.size(), kMaxReasonBytes);
  std::string frame(reinterpret_cast<const char*>(&head), sizeof head);
  return frame.append(reason, 0, head.bytes);
}

absl::Status ReadFully(Connection* connection, absl::Span<std::byte> bytes) {
  while (!bytes.empty()) {
    XLAD_ASSIGN_OR_RETURN(const size_t n, connection->Read(bytes));
    bytes.remove_prefix(n);
  }
  return absl::OkStatus();
}

absl::Status WriteBlock(Connection* connection, const std::string& block) {
  if (block.size() > kMaxBlockBytes) {
    return absl::InvalidArgumentError(absl::StrCat(connection->Peer(), ": found a message of ", block.size(),
                                                   " bytes, expected at most ", kMaxBlockBytes,
                                                   ", which is all that the peer reads"));
  }
  const uint32_t size = static_cast<uint32_t>(block.size());
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  return connection->Write(AsBytes(bytes + block));
}

absl::StatusOr<std::string> ReadBlock(Connection* connection) {
  uint32_t size = 0;
  XLAD_RETURN_IF_ERROR(ReadFully(connection, absl::MakeSpan(reinterpret_cast<std::byte*>(&size), sizeof size)));
  if (size > kMaxBlockBytes) {
    return absl::InvalidArgumentError(absl::StrCat(connection->Peer(), ": found a message of ", size,
                                                   " bytes, expected at most ", kMaxBlockBytes,
                                                   "; the peer may not be a worker"));
  }
  std::string block(size, '\0');
  XLAD_RETURN_IF_ERROR(ReadFully(connection, absl::MakeSpan(reinterpret_cast<std::byte*>(block.data()), size)));
  return block;
}

void RefusePeer(Connection* connection, absl::string_view why) {
  PeerWelcome welcome;
  welcome.set_refused(std::string(why));
  WriteBlock(connection, welcome.SerializeAsString()).IgnoreError();
}

}  // namespace xlad::collectives
