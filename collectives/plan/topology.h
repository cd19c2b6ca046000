// What connects the ranks of a collective, for the choice of an algorithm.
#pragma once

namespace xlad::collectives {

// The default is threads and processes of one host. A plan decides the bits of a result, so whoever wants the same
// bits for any placement of the same devices plans with the default (the coordinator does).
struct Topology {
  double message_us = 3;       // To hand over one message, small as it may be.
  double round_us = 8;         // To wait for messages of others once.
  double gigabytes_per_s = 4;  // What a rank sends while it receives as much.
  double reduce_gigabytes_per_s = 8;
};

}  // namespace xlad::collectives
