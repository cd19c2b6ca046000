// The wire format of protos, as far as reading a large message piece by piece needs it.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"

namespace xlad::hlo {

// Takes a message apart: `parts` gets the bytes of each submessage in field `number`, `rest` those of all other
// fields (nullptr: not wanted). The parts refer to `message`. False where the bytes are no message.
bool TakeOut(absl::string_view message, int number, std::vector<absl::string_view>* parts, std::string* rest);

// Adds what the bytes say, all of them; false where they are no such message. Nests deep enough for every tuple that
// text may nest.
bool MergeMessage(absl::string_view bytes, google::protobuf::MessageLite* out);

}  // namespace xlad::hlo
