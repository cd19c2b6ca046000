// The speed of a host or network, for the cost model (cost.h).
#pragma once

namespace xlad::collectives {

// The defaults were measured on threads and processes of one host.
struct CostParameters {
  double message_us = 3;       // The time to send one message, regardless of its size.
  double round_us = 8;         // The time of one wait for messages of other ranks.
  double gigabytes_per_s = 4;  // The rate at which a rank sends on one channel while it receives at the same rate.
  double reduce_gigabytes_per_s = 8;  // The rate of operand bytes at which a rank reduces.
  int directions = 1;    // The number of channels on which a rank can send at gigabytes_per_s at the same time.
  bool windows = false;  // Whether ranks can map each other's memory.
  double window_gigabytes_per_s = 8;  // The rate at which a rank reads the memory of others.
  double signal_us = 1;               // The time of one wait for signals of other ranks.
};

}  // namespace xlad::collectives
