// Which collectives NCCL may run.
//
// NCCL reduces in an order of its own. Reductions whose bits depend on the order are therefore only possible in the
// mode kFast. Integer sums, products, minima and maxima have the same bits in any order, and kinds that only move data
// do not reduce; NCCL may run these in every mode.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "collectives/exec/collective_set.h"
#include "collectives/exec/nccl/nccl_api.h"

namespace xlad::collectives::nccl {

// The engine of a plan (CollectivePlan::engine) that requires NCCL.
inline constexpr char kNcclEngine[] = "nccl";

// What a device tells its peers while communicators form.
struct Endpoint {
  std::string machine;  // The boot id and the host name of the machine, separated by a space.
  std::string gpu;      // The PCI address of the GPU, or empty if the device cannot use NCCL.
  int version = 0;      // The version of NCCL.
  // Whether NCCL may connect machines, although its traffic is neither encrypted nor authenticated.
  bool any_network = false;
  std::string why;  // Why the device cannot use NCCL, or empty.
  std::string Encode() const;
  // A text that has fewer than 5 lines or does not begin with a number becomes an endpoint that cannot use NCCL.
  static Endpoint Decode(absl::string_view text);
};

// Return why NCCL cannot run a collective, or an empty text if it can. The result is the same on all members of a
// group. `required` is true if the plan requires NCCL. If it is false, minima and maxima of floats are refused too,
// because NCCL does not define them for NaNs.
std::string WhyNotSpec(const CollectiveSpec& spec, bool required);
// `endpoints` contains the endpoints of the group's members, by device.
std::string WhyNotGroup(const std::vector<int>& group, const std::map<int, Endpoint>& endpoints);
// Returns why NCCL does not run a collective on the group of devices, or an empty text if it does.
std::string WhyNotCollective(const Collective& collective, const std::vector<int>& group,
                             const std::map<int, Endpoint>& endpoints);
// The indices of the collectives of `device` that NCCL runs. `endpoints` also contains the members of its groups.
std::set<int> SpecsOf(const CollectiveSet& collectives, int device, const std::map<int, Endpoint>& endpoints);

// How the elements of a spec are passed to NCCL. Kinds that only move data pass bytes.
struct Elements {
  DataType type = kUint8;
  int64_t per_element = 1;  // The number of elements of `type` per element of the spec.
};
Elements ElementsOf(const CollectiveSpec& spec);
Op OpOf(Reduction reduction);

}  // namespace xlad::collectives::nccl
