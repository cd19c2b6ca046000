// NVIDIA's NCCL, loaded when it is first needed: one binary runs with and without it.
#pragma once

#include <string>

#include "base/status.h"
#include "collectives/exec/nccl/nccl_api.h"

namespace xlad::collectives::nccl {

inline constexpr char kNcclLibrary[] = "libnccl.so.2";
// The environment variable that names another library with NCCL's functions, unless it is empty. If it is kOff,
// NCCL is not used.
inline constexpr char kNcclVariable[] = "XLAD_NCCL";
inline constexpr char kOff[] = "off";
// NCCL 2.18, the first version whose ncclConfig_t has all members of Config.
inline constexpr int kOldestVersion = kConfigVersion;

// "2.28.9" for 22809.
std::string VersionText(int version);

// The functions of the library, which is never unloaded.
struct Library {
#define XLAD_NCCL_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  XLAD_NCCL_FUNCTIONS(XLAD_NCCL_MEMBER)
#undef XLAD_NCCL_MEMBER
  int version = 0;  // 22809 is NCCL 2.28.9.
  std::string name;

  // OK for kSuccess and kInProgress. Otherwise Unavailable if a peer or the network failed, InvalidArgument for a wrong
  // call, and Internal for all other errors. The text contains NCCL's last error, if there is one. `communicator` may
  // be null.
  absl::Status Check(Result result, const std::string& what, CommHandle communicator) const;
};

// Unavailable, with the reason, if `name` is kOff, or if the library cannot be loaded, does not report its version, is
// older than kOldestVersion, or lacks a function.
absl::StatusOr<const Library*> LoadNccl(const std::string& name);

// The NCCL of this process: the library that kNcclVariable names, or kNcclLibrary. It is loaded by the first call, and
// all calls have the same result.
absl::StatusOr<const Library*> TheNccl();

}  // namespace xlad::collectives::nccl
