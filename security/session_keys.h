// Keys by which the first worker of a session (proto/session.proto) recognizes the other workers, and seals that prove
// to it that the coordinator has built a program for the session.
//
// The coordinator chooses a random secret for each session and sends it only to the first worker. All keys and seals
// are HMAC-SHA256 (RFC 2104) with that secret, as 64 lower-case hex digits. The first worker can verify them without
// the coordinator. Neither a client nor another worker can compute them. The functions are thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "proto/session.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::security {

using CollectivePlans = google::protobuf::RepeatedPtrField<CollectivePlanProto>;

// The key that worker `worker_id` sends with its calls to the first worker.
std::string FollowerKey(absl::string_view secret, absl::string_view worker_id);

// The key of the attempt, for the connections between the workers of the session.
std::string DataKey(absl::string_view secret);

// The seal of a program. It proves that the coordinator built this executable for the session and chose these plans for
// its collectives.
std::string ProgramSeal(absl::string_view secret, absl::string_view executable_digest, const CollectivePlans& plans);

}  // namespace xlad::security
