// The wire format of protos, as far as reading a large message piece by piece needs it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"

namespace xlad::hlo {

// The fields of a message's bytes, one after the other. What it gives refers to the bytes.
class WireReader {
 public:
  enum Type : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kGroup = 3, kFixed32 = 5 };
  struct Field {
    uint32_t number = 0;
    Type type = kVarint;
    uint64_t value = 0;       // Of kVarint.
    absl::string_view bytes;  // Of kBytes.
    absl::string_view whole;  // With its tag.
    bool Is(uint32_t n, Type t) const { return number == n && type == t; }
  };

  explicit WireReader(absl::string_view message)
      : at_(message.data()), end_(message.data() + message.size()), ok_(true) {}

  // False at the end, and where the bytes are no message: ok() tells which.
  bool Next(Field* field);
  bool ok() const { return ok_; }
  // A number of a packed field's bytes; false as Next.
  bool NextVarint(uint64_t* value);

 private:
  bool Varint(uint64_t* value);
  bool Skip(size_t bytes);
  bool SkipGroup(const char* start);

  const char* at_;
  const char* end_;
  bool ok_;
};

// Takes a message apart: `parts` gets the bytes of each submessage in field `number`, `rest` those of all other
// fields (nullptr: not wanted) but for submessages in field `dropped`. The parts refer to `message`. False where the
// bytes are no message.
bool TakeOut(absl::string_view message, int number, std::vector<absl::string_view>* parts, std::string* rest,
             int dropped = 0);

// Adds what the bytes say, all of them; false where they are no such message. Nests deep enough for every tuple that
// text may nest.
bool MergeMessage(absl::string_view bytes, google::protobuf::MessageLite* out);

}  // namespace xlad::hlo
