// A transport for tests that injects a fault at a chosen message. It imitates a broken network, a broken library or a
// process that dies. It wraps any other transport (FabricOptions::decorate).
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>

#include "collectives/exec/transport.h"

namespace xlad::collectives {

enum class Fault {
  kDrop,           // The message is not sent.
  kDuplicate,      // The message is sent twice.
  kDelay,          // The message is sent after `at_fault` has returned.
  kCorrupt,        // One bit of the payload changes, unless the payload is empty.
  kCorruptHeader,  // One bit of the header changes.
  kHalfClose,      // This message and later messages on its channel are not sent. The peer's messages still arrive.
  // `at_fault` ends the sender, for example by destroying its connections. The call that sends the message returns
  // Cancelled, and no later message on its channel to the peer is sent.
  kKill,
};

struct FaultPlan {
  Fault fault = Fault::kDrop;
  int device = 0;                         // The device that sends the message.
  int peer = -1;                          // The device that receives the message, or -1 for any device.
  int first_channel = kFirstDataChannel;  // The first affected channel.
  int64_t message = 0;  // The message's index, from 0, among the messages from `device` to `peer` on these channels.
  std::function<void()> at_fault;  // Called by the sender's thread when it reaches the message; may be null.
};

// The number of messages that the plan has counted, and whether its message has been reached. The transports of all
// devices share this state.
struct FaultState {
  std::atomic<int64_t> messages = 0;
  std::atomic<bool> happened = false;
};

// `inner` and `state` must outlive the transport. Devices other than plan.device are not affected.
std::unique_ptr<Transport> MakeFaultyTransport(const FaultPlan& plan, int device, Transport* inner, FaultState* state);

}  // namespace xlad::collectives
