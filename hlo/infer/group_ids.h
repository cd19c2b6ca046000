// What the numbers in the replica groups and source-target pairs of a collective denote.
#pragma once

#include "hlo/module.h"

namespace xlad::hlo {

// What an id denotes follows from the opcode, channel_id and use_global_device_ids. kReplicaAllPartitions is a replica
// with all of its partitions.
enum class GroupIds { kReplica, kPartition, kReplicaAllPartitions, kGlobal };
GroupIds IdsOf(const Instruction& instruction);

}  // namespace xlad::hlo
