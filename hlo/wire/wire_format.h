// The part of the protobuf wire format that is needed to read a large message piece by piece.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"

namespace xlad::hlo {

// Iterates over the fields of a serialized message. The fields refer to the bytes of the message.
class WireReader {
 public:
  enum Type : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kGroup = 3, kFixed32 = 5 };
  struct Field {
    uint32_t number = 0;
    Type type = kVarint;
    uint64_t value = 0;       // Set if type is kVarint.
    absl::string_view bytes;  // Set if type is kBytes.
    absl::string_view whole;  // The field with its tag.
    bool Is(uint32_t n, Type t) const { return number == n && type == t; }
  };

  explicit WireReader(absl::string_view message)
      : at_(message.data()), end_(message.data() + message.size()), ok_(true) {}

  // Returns false at the end or if the bytes are not a valid message. In the second case ok() is false.
  bool Next(Field* field);
  bool ok() const { return ok_; }
  // Reads a number from the bytes of a packed field. Returns false like Next.
  bool NextVarint(uint64_t* value);

 private:
  bool Varint(uint64_t* value);
  bool Skip(size_t bytes);
  bool SkipGroup(const char* start);

  const char* at_;
  const char* end_;
  bool ok_;
};

// Splits a message. `parts` receives views into `message`, one per submessage in field `number`. If `rest` is not null,
// it receives the bytes of all other fields with their tags, except those of submessages in field `dropped`. Returns
// false if the bytes are not a valid message.
bool SplitMessage(absl::string_view message, int number, std::vector<absl::string_view>* parts, std::string* rest,
             int dropped = 0);

// Merges `bytes` into `out`. Returns false if they are not a valid message of its type, or if they are 2 GiB or more.
// Tuples may be nested as deeply as in HLO text.
bool MergeMessage(absl::string_view bytes, google::protobuf::MessageLite* out);

}  // namespace xlad::hlo
