// Joins the parts of a message to a worker, for tests. Outside of tests the parts are joined by the receiver.
#pragma once

#include "base/status.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "service/state/effects.h"

namespace xlad::service {

// Returns the message that the worker receives.
inline CoordinatorMessage WholeOf(const SendMessage& send) {
  CoordinatorMessage whole;
  if (send.common != nullptr) {
    XLAD_CHECK(whole.ParseFromString(*send.common));
  }
  whole.MergeFrom(send.message);
  return whole;
}

}  // namespace xlad::service
