// The number of devices of a mesh, and its text.
#pragma once

#include <cstdint>
#include <string>

#include "proto/executable.pb.h"

namespace xlad {

// The product of the axes' sizes, which is 1 for an empty mesh.
inline int64_t NumDevices(const google::protobuf::RepeatedPtrField<MeshAxis>& mesh) {
  int64_t devices = 1;
  for (const MeshAxis& axis : mesh) devices *= axis.size();
  return devices;
}

// The mesh as text, given a container of its axes: "dp=4,tp=2", or "single" for an empty mesh.
template <typename Axes>
std::string MeshText(const Axes& mesh) {
  std::string text;
  for (const MeshAxis& axis : mesh) text += (text.empty() ? "" : ",") + axis.name() + "=" + std::to_string(axis.size());
  return text.empty() ? "single" : text;
}

}  // namespace xlad
