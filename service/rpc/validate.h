// Checks every message from clients and workers once, when it has been parsed.
//
// Validate returns InvalidArgument for a message that no correct client or worker sends. Examples are text that is too
// long or has control characters, negative counts and steps, impossible boxes and meshes, and malformed digests. The
// error has the field, what was found and what was expected. A message that passes may still be wrong for the state of
// the service. For example, job and session ids are only looked up later.
#pragma once

#include "base/status.h"
#include "proto/job.pb.h"
#include "proto/session.pb.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::service {

inline constexpr int kMaxNameBytes = 256;         // The limit for names and ids.
inline constexpr int kMaxTensorNameBytes = 1024;  // The limit for names of parameters, results and tensors.
inline constexpr int kMaxPathBytes = 4096;        // The limit for paths and URIs.
inline constexpr int kMaxMeshAxes = 16;
inline constexpr int64_t kMaxMeshDevices = 1 << 20;
inline constexpr int64_t kMaxSteps = int64_t{1} << 53;  // The limit for steps and for other counts, offsets and sizes.
inline constexpr int64_t kMaxUploadedArrayBytes = int64_t{64} << 30;

absl::Status Validate(const JobSpec& spec);
absl::Status Validate(const SubmitJobRequest& request);
absl::Status Validate(const ListJobsRequest& request);
absl::Status Validate(const GetJobRequest& request);
absl::Status Validate(const WatchJobRequest& request);
absl::Status Validate(const CancelJobRequest& request);
absl::Status Validate(const JobLogRequest& request);
absl::Status Validate(const WhyJobRequest& request);
absl::Status Validate(const GetTraceRequest& request);
absl::Status Validate(const ResizeJobRequest& request);
absl::Status Validate(const ListWorkersRequest& request);
absl::Status Validate(const DrainWorkerRequest& request);
absl::Status Validate(const UndrainWorkerRequest& request);
absl::Status Validate(const GetStatusRequest& request);
absl::Status Validate(const BackupRequest& request);
absl::Status Validate(const HasBlobsRequest& request);
absl::Status Validate(const GetBlobRequest& request);
absl::Status Validate(const GetBlobRangeRequest& request);
absl::Status Validate(const OpenSessionRequest& request);
absl::Status Validate(const HoldSessionRequest& request);
absl::Status Validate(const LoadProgramRequest& request);
absl::Status Validate(const CallProgramRequest& request);
absl::Status Validate(const PutBatchRequest& header);
absl::Status Validate(const GetBatchRangeRequest& request);
absl::Status Validate(const LocateSessionRequest& request);
absl::Status Validate(const AddProgramRequest& request);
absl::Status Validate(const GetArrayRequest& request);
absl::Status Validate(const FreeArraysRequest& request);
absl::Status Validate(const CloseSessionRequest& request);
absl::Status Validate(const WorkerMessage& message);

// The following, and PutBatchRequest, are the first messages of uploads. Later messages have only a chunk.
absl::Status Validate(const PutBlobRequest& header);
absl::Status Validate(const PutArrayRequest& header);

}  // namespace xlad::service
