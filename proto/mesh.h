// The number of devices of a mesh.
#pragma once

#include <cstdint>

#include "proto/executable.pb.h"

namespace xlad {

// The product of the axes' sizes, which is 1 for an empty mesh.
inline int64_t NumDevices(const google::protobuf::RepeatedPtrField<MeshAxis>& mesh) {
  int64_t devices = 1;
  for (const MeshAxis& axis : mesh) devices *= axis.size();
  return devices;
}

}  // namespace xlad
