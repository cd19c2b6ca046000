// A transport that does harm at a chosen message, for tests: what a broken network, a broken library or a dying process
// would do. It goes around any other transport (FabricOptions::decorate).
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
  int device = 0;                         // The sender that is harmed.
  int peer = -1;                          // The receiver; -1: any.
  int first_channel = kFirstDataChannel;  // Messages of lower channels are left alone.
  int64_t message = 0;                    // Counts the messages of the device to the peer on these channels, from 0.
  std::function<void()> at_fault;         // Called by the sender's thread when it comes to the message; may be null.
};

// Whether the message of a plan has been reached. Shared by the transports of all devices.
struct FaultState {
  std::atomic<int64_t> messages = 0;
  std::atomic<bool> happened = false;
};

// `inner` and `state` must outlive the transport. Devices other than plan.device are left alone.
std::unique_ptr<Transport> MakeFaultyTransport(const FaultPlan& plan, int device, Transport* inner, FaultState* state);

}  // namespace xlad::collectives
