// The speed of a host or network, for the cost model (cost.h).
#pragma once

namespace xlad::collectives {

// The default is measured on threads and processes of one host. A plan determines the order of reduction, and thereby
// the bits of results: the coordinator always plans with the default, so that bits do not depend on the placement of
// devices.
struct CostParameters {
  double message_us = 3;              // The time to send one message, regardless of its size.
  double round_us = 8;                // The time to wait once for messages of other ranks.
  double gigabytes_per_s = 4;         // The rate at which a rank sends while it receives at the same rate.
  double reduce_gigabytes_per_s = 8;  // The rate of operand bytes at which a rank reduces.
};

}  // namespace xlad::collectives
