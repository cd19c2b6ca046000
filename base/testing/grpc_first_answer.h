// The first answer to a call by name, for tests that make all calls of a service.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "base/net/grpc_channel.h"

namespace xlad {

// Waits for the next operation of the queue to end. Returns whether it succeeded.
inline bool NextSucceeds(grpc::CompletionQueue* queue) {
  void* tag = nullptr;
  bool ok = false;
  queue->Next(&tag, &ok);
  return ok;
}

// Makes a call with one message: `path` is "/SERVICE/METHOD", and `bytes` is the serialized message. Returns OK if the
// server sends a message, and otherwise the status of the call.
inline grpc::Status FirstAnswer(const std::shared_ptr<grpc::Channel>& channel, const std::string& token,
                                const std::string& path, const std::string& bytes) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  PrepareCall(&context, token, /*timeout_ms=*/600'000);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, path, &queue);
  const grpc::Slice slice(bytes);
  call->StartCall(nullptr);
  if (NextSucceeds(&queue)) {
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    NextSucceeds(&queue);
  }
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  const bool is_received = NextSucceeds(&queue);
  if (is_received) context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  NextSucceeds(&queue);
  queue.Shutdown();
  return is_received ? grpc::Status::OK : status;
}

}  // namespace xlad
