// For tests and fuzzing: checks that a module stays the same when it is written as text or as a proto and read back.
#pragma once

#include "base/status.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"
#include "hlo/wire/proto.h"

namespace xlad::hlo {

// Returns OK, or an error that says which step fails or changes the module.
inline absl::Status CheckRoundTrips(const Module& module) {
  const std::string text = PrintText(module);
  const absl::StatusOr<std::unique_ptr<Module>> from_text = ParseText(text);
  if (!from_text.ok()) return Annotate(from_text.status(), absl::StrCat("the text does not parse\n", text));
  if (PrintText(**from_text) != text) return absl::InternalError(absl::StrCat("text changes the module\n", text));
  XLAD_ASSIGN_OR_RETURN(const std::string proto, SerializeProto(module));
  const absl::StatusOr<std::unique_ptr<Module>> from_proto = ParseProto(proto);
  if (!from_proto.ok()) return Annotate(from_proto.status(), absl::StrCat("the proto cannot be read\n", text));
  if (PrintText(**from_proto) != text) return absl::InternalError(absl::StrCat("a proto changes the module\n", text));
  XLAD_ASSIGN_OR_RETURN(const std::string again, SerializeProto(**from_proto));
  return again == proto ? absl::OkStatus() : absl::InternalError(absl::StrCat("bytes of the proto change\n", text));
}

// For fuzz targets: checks that a module that has been read survives round trips if it is valid. A module that the
// verifier refuses may change in a round trip, but must not cause a crash.
inline void CheckRead(const absl::StatusOr<std::unique_ptr<Module>>& module) {
  if (!module.ok()) return;
  const absl::Status round_trips = CheckRoundTrips(**module);
  const bool valid = Verify(**module).ok();
  XLAD_CHECK(round_trips.ok() || !valid) << round_trips;
}

}  // namespace xlad::hlo
