// Messages that are valid protos with odd values: plausible ones, limits, and values beyond the limits. Random bytes
// are rarely a valid message.
#pragma once

#include <google/protobuf/message.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>

#include "proto/job.pb.h"
#include "service/rpc/validate.h"

namespace xlad::service {

// Returns a number less than `below`, which is at least 1. Returns 0 forever when the source of choices is used up.
using Choose = std::function<uint64_t(uint64_t below)>;

template <size_t kCount, typename Value>
Value OneOf(const Choose& choose, const Value (&values)[kCount]) {
  return values[choose(kCount)];
}

inline int64_t OddNumber(const Choose& choose) {
  constexpr int64_t kNumbers[] = {0,         1,         1,  1,        2, 3, 9, 10, 11, 1000, kMaxSteps, kMaxSteps + 1,
                                  INT32_MAX, INT64_MAX, -1, INT64_MIN};
  return OneOf(choose, kNumbers);
}

inline std::string OddText(const Choose& choose) {
  const std::string texts[] = {"",
                               "w",
                               "w",
                               "dp",
                               "xlad:",
                               "file:/x",
                               "h:1",
                               "line\nline",
                               std::string(64, '0'),
                               std::string(kMaxNameBytes + 1, 'x')};
  return OneOf(choose, texts);
}

inline void SetOddNumber(const Choose& choose, const google::protobuf::FieldDescriptor* field,
                         google::protobuf::Message* message) {
  using Field = google::protobuf::FieldDescriptor;
  const auto* reflection = message->GetReflection();
  switch (field->cpp_type()) {
    case Field::CPPTYPE_INT64:
      return reflection->SetInt64(message, field, OddNumber(choose));
    case Field::CPPTYPE_INT32:
      return reflection->SetInt32(message, field, static_cast<int32_t>(OddNumber(choose)));
    case Field::CPPTYPE_UINT64:
      return reflection->SetUInt64(message, field, static_cast<uint64_t>(OddNumber(choose)));
    case Field::CPPTYPE_BOOL:
      return reflection->SetBool(message, field, choose(2) == 1);
    case Field::CPPTYPE_ENUM:
      return reflection->SetEnumValue(message, field, static_cast<int>(OddNumber(choose) & 3));
    default:
      return;
  }
}

// Sets about two thirds of the fields. Fields named job_id or session_id stay empty.
inline void MakeOdd(const Choose& choose, google::protobuf::Message* message, int depth = 0) {
  using Field = google::protobuf::FieldDescriptor;
  const auto* reflection = message->GetReflection();
  for (int f = 0; f < message->GetDescriptor()->field_count(); ++f) {
    const Field* field = message->GetDescriptor()->field(f);
    if (choose(3) == 0) continue;
    if (field->cpp_type() == Field::CPPTYPE_MESSAGE) {
      if (depth >= 4 || field->is_map()) continue;
      const bool is_list = field->is_repeated();
      MakeOdd(choose, is_list ? reflection->AddMessage(message, field) : reflection->MutableMessage(message, field),
              depth + 1);
    } else if (field->is_repeated()) {
      if (field->cpp_type() == Field::CPPTYPE_STRING) reflection->AddString(message, field, OddText(choose));
      if (field->cpp_type() == Field::CPPTYPE_INT64) reflection->AddInt64(message, field, OddNumber(choose));
      if (field->cpp_type() == Field::CPPTYPE_FLOAT) reflection->AddFloat(message, field, NAN);
    } else if (field->name() != "job_id" && field->name() != "session_id") {
      if (field->cpp_type() == Field::CPPTYPE_STRING) reflection->SetString(message, field, OddText(choose));
      SetOddNumber(choose, field, message);
    }
  }
}

// Sets the empty fields named `name` in the message and its parts.
inline void FillIn(const char* name, const std::string& value, google::protobuf::Message* message) {
  const auto* reflection = message->GetReflection();
  for (int f = 0; f < message->GetDescriptor()->field_count(); ++f) {
    const auto* field = message->GetDescriptor()->field(f);
    if (field->is_repeated()) continue;
    if (field->cpp_type() == field->CPPTYPE_STRING && field->name() == name) {
      if (reflection->GetString(*message, field).empty()) reflection->SetString(message, field, value);
    } else if (field->cpp_type() == field->CPPTYPE_MESSAGE && reflection->HasField(*message, field)) {
      FillIn(name, value, reflection->MutableMessage(message, field));
    }
  }
}

}  // namespace xlad::service
