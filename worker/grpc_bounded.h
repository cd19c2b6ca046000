// Requests of a synchronous gRPC service whose memory is estimated before they are parsed (decision 73). gRPC's
// generated services parse requests of any size, so such a service registers its methods itself.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>

#include "base/status.h"

namespace xlad::worker {

// The memory that is reserved for a message. The messages of this process have 512 MiB together, not counting those
// that take at most 2 MiB. Not thread-safe.
class ParsedMemory {
 public:
  ParsedMemory() = default;
  ~ParsedMemory() { Release(); }
  ParsedMemory(const ParsedMemory&) = delete;
  ParsedMemory& operator=(const ParsedMemory&) = delete;
  // Empties `buffer`, and reserves the memory of `message` until Release. Must not be called while memory is reserved.
  // InvalidArgument if the message would take more than 160 MiB or cannot be parsed. Unavailable if other messages take
  // too much memory.
  absl::Status Parse(grpc::ByteBuffer* buffer, google::protobuf::MessageLite* message);
  bool is_reserved() const { return bytes_ > 0; }
  void Release();  // The message must have been freed before.

 private:
  absl::Status Reserve(int64_t bytes);

  int64_t bytes_ = 0;
};

// A request as the service's methods and streams get it.
template <typename Message>
struct Bounded {
  ParsedMemory memory;  // It is destroyed after the message.
  Message message;
  absl::Status status;  // If it is not OK, `message` is not the client's.
};

}  // namespace xlad::worker

namespace grpc {

template <typename Message>
class SerializationTraits<xlad::worker::Bounded<Message>> {
 public:
  // Returns OK even if the message is refused, because a stream would end without the reason.
  static Status Deserialize(ByteBuffer* buffer, xlad::worker::Bounded<Message>* request) {
    if (request->memory.is_reserved()) request->message = Message();  // Message::Clear would keep the memory.
    request->memory.Release();
    request->status = request->memory.Parse(buffer, &request->message);
    return Status::OK;
  }
};

}  // namespace grpc
