// Keys with which the first worker of a session (proto/session.proto) verifies which other worker makes a call, and
// which programs the coordinator has built for the session.
//
// The coordinator chooses a random secret for each session and sends it only to the first worker. All keys and seals
// are HMAC-SHA256 (RFC 2104) with that secret, as 64 lower-case hex digits. The first worker can verify them without
// the coordinator, and neither a client nor another worker can make them. The functions are thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "proto/session.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::security {

using CollectivePlans = google::protobuf::RepeatedPtrField<CollectivePlanProto>;

// The key that the calls of another worker of the session carry. Every worker has a different one.
std::string FollowerKey(absl::string_view secret, absl::string_view worker_id);

// The key of the attempt, for the connections between the workers of the session.
std::string DataKey(absl::string_view secret);

// The seal, which proves that the coordinator built this executable for the session and chose these plans for its
// collectives.
std::string ProgramSeal(absl::string_view secret, absl::string_view executable_digest, const CollectivePlans& plans);

}  // namespace xlad::security
