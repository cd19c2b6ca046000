// A transport for tests that injects a fault at a chosen message, as a broken network, a broken library or a dying
// process would. It wraps any other transport (FabricOptions::decorate).
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
  kDelay,          // The message waits until `at_fault` returns.
  kCorrupt,        // One bit of the payload changes.
  kCorruptHeader,  // One bit of the header changes.
  kHalfClose,      // Neither this nor any later message on its channel is sent; those of the peer arrive.
  kKill,           // `at_fault` ends the sender, for example by destroying its connections; it sends nothing more.
};

struct FaultPlan {
  Fault fault = Fault::kDrop;
  int device = 0;                         // The sender.
  int peer = -1;                          // The receiver, or -1 for any.
  int first_channel = kFirstDataChannel;  // Messages of lower channels are not affected.
  int64_t message = 0;                    // Counts the messages of the device to the peer on these channels, from 0.
  std::function<void()> at_fault;         // Called by the sender's thread when it comes to the message; may be null.
};

// Whether the message of a plan has been reached. Shared by the transports of all devices.
struct FaultState {
  std::atomic<int64_t> messages = 0;
  std::atomic<bool> happened = false;
};

// `inner` and `state` must outlive the transport. Devices other than plan.device are not affected.
std::unique_ptr<Transport> MakeFaultyTransport(const FaultPlan& plan, int device, Transport* inner, FaultState* state);

}  // namespace xlad::collectives
