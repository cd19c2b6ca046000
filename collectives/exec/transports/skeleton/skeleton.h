// A transport plugin to begin a new one from: messages between engines of one process, through a table in its memory.
// It has all parts of xlad_transport.h, and the conformance suite runs over it. Large payloads are read from the
// sender's memory when their receive is posted, so that sends stay pending as they do with libraries for networks.
#pragma once

#include "collectives/exec/transports/plugin/xlad_transport.h"

namespace xlad::collectives {

// Linked into the program; a plugin exports a function xlad_transport instead.
const xlad_transport_api* SkeletonTransport();

}  // namespace xlad::collectives
