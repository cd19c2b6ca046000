// The calls that gRPC defines for any server: health (proto/health.proto) and reflection (proto/reflection.proto).
#pragma once

#include "proto/health.pb.h"
#include "proto/reflection.pb.h"
#include "service/grpc_methods.h"

namespace xlad::service {

// NOT_SERVING while the coordinator is not serving, SERVICE_UNKNOWN for a service that it does not have.
grpc::health::v1::HealthCheckResponse HealthOf(bool serving, absl::string_view service);

// The answer to a question about the services and messages of this program.
grpc::reflection::v1::ServerReflectionResponse Reflect(const grpc::reflection::v1::ServerReflectionRequest& request);

// Adds these calls to the table, by the names that they have in security/roles.h.
void AddStandardCalls(const Serving& serving, CallTable* table);

}  // namespace xlad::service
