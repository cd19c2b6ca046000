// What the first worker of a session (proto/session.proto) accepts: from which other worker a call comes, and which
// programs the coordinator has built for the session.
//
// The coordinator chooses a random secret for each session and sends it to the first worker alone. Everything else is
// an HMAC-SHA256 (RFC 2104) with that secret, as 64 lower-case hex digits. The first worker can check it without asking
// the coordinator, and no client and no other worker can make one. Thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "proto/session.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::security {

using CollectivePlans = google::protobuf::RepeatedPtrField<CollectivePlanProto>;

// What the calls of another worker of the session carry: different for each worker.
std::string FollowerKey(absl::string_view secret, absl::string_view worker_id);

// The key of the attempt, for the connections between the workers of the session.
std::string DataKey(absl::string_view secret);

// Shows that the coordinator has built this executable for the session, and has chosen these plans for its collectives.
std::string ProgramSeal(absl::string_view secret, absl::string_view executable_digest, const CollectivePlans& plans);

}  // namespace xlad::security
