// The calls that gRPC defines for any server: health (proto/health.proto) and reflection (proto/reflection.proto).
#pragma once

#include "proto/health.pb.h"
#include "proto/reflection.pb.h"
#include "service/rpc/grpc_methods.h"

namespace xlad::service {

// Returns SERVICE_UNKNOWN if the coordinator has no such service. Otherwise returns SERVING if `serving` is set, and
// NOT_SERVING if not. An empty `service` stands for the whole server.
grpc::health::v1::HealthCheckResponse HealthOf(bool serving, absl::string_view service);

// Answers a reflection request about the services and messages of this program.
grpc::reflection::v1::ServerReflectionResponse Reflect(const grpc::reflection::v1::ServerReflectionRequest& request);

// Adds these calls to the table, under names such as "grpc.health.v1.Health/Check".
void AddStandardCalls(const Serving& serving, CallTable* table);

}  // namespace xlad::service
