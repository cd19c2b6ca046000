// A starting point for new transport plugins. It sends messages between engines of one process through a table in
// memory. It implements all functions of xlad_transport.h that are not optional, and the conformance suite runs over
// it. Large payloads are read from the sender's memory when the send and its receive have both been posted. Sends may
// therefore stay pending, as with network libraries.
#pragma once

#include "collectives/exec/transports/plugin/xlad_transport.h"

namespace xlad::collectives {

// This plugin is linked into the program. Other plugins export the function xlad_transport instead.
const xlad_transport_api* SkeletonTransport();

}  // namespace xlad::collectives
