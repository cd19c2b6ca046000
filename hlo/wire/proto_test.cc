// Modules as protos: round trips preserve modules, ids may have any form, and errors name the place.
#include "hlo/wire/proto.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/testing/test_programs.h"
#include "hlo/text/text.h"
#include "proto/hlo.pb.h"

namespace xlad::hlo {
namespace {

using ::testing::HasSubstr;

std::string ToProto(absl::string_view text) {
  const absl::StatusOr<std::unique_ptr<Module>> module = ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status();
  const absl::StatusOr<std::string> proto = SerializeProto(**module);
  EXPECT_TRUE(proto.ok()) << proto.status();
  return *proto;
}

hlo_proto::Module ToMessage(absl::string_view text) {
  hlo_proto::Module message;
  EXPECT_TRUE(message.ParseFromString(ToProto(text)));
  return message;
}

std::string ToText(const std::string& proto) {
  const absl::StatusOr<std::unique_ptr<Module>> module = ParseProto(proto);
  return module.ok() ? PrintText(**module) : std::string(module.status().message());
}

void ExpectSameTextThroughProto(absl::string_view text) {
  SCOPED_TRACE(text);
  const absl::StatusOr<std::unique_ptr<Module>> module = ParseText(text);
  ASSERT_TRUE(module.ok()) << module.status();
  const std::string proto = ToProto(text);
  EXPECT_EQ(ToText(proto), PrintText(**module));
  const absl::StatusOr<std::unique_ptr<Module>> back = ParseProto(proto);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ((*back)->entry()->root()->attributes(), (*module)->entry()->root()->attributes());
  EXPECT_EQ(*SerializeProto(**back), proto);
}

TEST(Proto, RoundTripsPreserveTheText) {
  for (const absl::string_view snippet : InstructionSnippets()) ExpectSameTextThroughProto(snippet);
  for (const absl::string_view module : ModuleSnippets()) ExpectSameTextThroughProto(module);
  for (const absl::string_view literal : LiteralSnippets()) ExpectSameTextThroughProto(literal);
  for (const absl::string_view sharding : ShardingSnippets()) {
    ExpectSameTextThroughProto(absl::StrCat("f32[8] add(f32[8] x, f32[8] y), sharding=", sharding));
  }
  for (const absl::string_view groups : ReplicaGroupSnippets()) {
    ExpectSameTextThroughProto(absl::StrCat("f32[8] all-to-all(f32[8] x), replica_groups=", groups));
  }
}

// Fields that other readers of HloModuleProto require.
TEST(Proto, HasTheFieldsThatOtherReadersRequire) {
  const hlo_proto::Module message = ToMessage(ModuleSnippets()[2]);
  std::set<int64_t> ids;
  for (const hlo_proto::Computation& computation : message.computations()) {
    EXPECT_TRUE(computation.has_program_shape());
    for (const hlo_proto::Instruction& instruction : computation.instructions()) {
      EXPECT_TRUE(ids.insert(instruction.id()).second);
      EXPECT_TRUE(instruction.shape().has_layout());
    }
  }
  EXPECT_EQ(message.entry_computation_id(), message.computations(1).id());
  EXPECT_EQ(message.host_program_shape().parameters_size(), 1);
  const hlo_proto::Module matrix = ToMessage("f32[2,3] negate(f32[2,3] x)");
  const hlo_proto::Shape& shape = matrix.computations(0).instructions(1).shape();
  EXPECT_THAT(shape.layout().minor_to_major(), ::testing::ElementsAre(1, 0));
  EXPECT_TRUE(shape.no_layout());
}

// Numbers of an accuracy that XLA's integer field cannot hold are only in the text.
TEST(Proto, AccuraciesOutsideOfTheFieldAreKeptAsText) {
  for (const absl::string_view ulps : {"7", "1e300", "-1e300", "nan", "inf", "9223372036854775808"}) {
    const std::string text = absl::StrCat(
        "HloModule m\n\nENTRY %e (x: f32[2]) -> f32[2] {\n  %x = f32[2] parameter(0)\n",
        "  ROOT %y = f32[2] exponential(%x), result_accuracy={tolerance={ulps=", ulps, "}}\n}\n");
    ExpectSameTextThroughProto(text);
    const auto message = ToMessage(text);
    const auto& tolerance = message.computations(0).instructions(1).result_accuracy().tolerance();
    EXPECT_EQ(tolerance.ulps(), ulps == "7" ? 7 : 0) << ulps;
  }
}

// XLA may list the instructions of a scheduled computation in any order with operands before users.
TEST(Proto, AScheduleDeterminesTheOrder) {
  hlo_proto::Module message = ToMessage(
      "HloModule m, is_scheduled=true\nENTRY e { a = f32[] parameter(0) b = f32[] negate(a) c = f32[] abs(a) "
      "ROOT d = f32[] add(b, c) }");
  auto& sequence = message.mutable_schedule()->mutable_sequences()->at(message.entry_computation_id());
  const int64_t first = message.computations(0).instructions(0).id();
  const auto schedule = [&](std::initializer_list<int64_t> places) {
    sequence.clear_instruction_ids();
    for (const int64_t place : places) sequence.add_instruction_ids(first + place);
    return ToText(message.SerializeAsString());
  };
  EXPECT_THAT(schedule({0, 2, 1, 3}), HasSubstr("%c = f32[] abs(%a)\n  %b = f32[] negate(%a)\n"));
  EXPECT_THAT(schedule({0, 1, 2, 3}), HasSubstr("%b = f32[] negate(%a)\n  %c = f32[] abs(%a)\n"));
  EXPECT_THAT(schedule({0, 1, 3, 2}), HasSubstr("found %d before its operands in the schedule"));
  EXPECT_THAT(schedule({0, 1, 2}), HasSubstr("found a schedule of 3 instructions, expected all 4"));
  EXPECT_THAT(schedule({0, 1, 1, 3}), HasSubstr("in the schedule, expected the id of each instruction once"));
  EXPECT_THAT(schedule({0, 1, 99}), HasSubstr("in the schedule, expected the id of each instruction once"));
}

TEST(Proto, LabelsOfLibraryConvolutionsAreChecked) {
  hlo_proto::Module message = ToMessage(
      "f32[2] custom-call(f32[2] x), custom_call_target=\"conv\", window={size=2x2}, dim_labels=b01f_01i?o->b01f");
  hlo_proto::Instruction& call = *message.mutable_computations(0)->mutable_instructions(1);
  auto* const numbers = call.mutable_convolution_dimension_numbers();
  EXPECT_THAT(ToText(message.SerializeAsString()), HasSubstr("dim_labels=b01f_01i?o->b01f"));
  numbers->set_kernel_spatial_dimensions(0, 2);
  EXPECT_THAT(ToText(message.SerializeAsString()), HasSubstr("found convolution dimensions with two roles or none"));
  numbers->set_kernel_spatial_dimensions(0, 64);
  EXPECT_THAT(ToText(message.SerializeAsString()), HasSubstr("found convolution dimensions with two roles or none"));
}

TEST(Proto, ConstantsAreInLayoutOrder) {
  const hlo_proto::Module message = ToMessage("f32[2,3]{0,1} constant({{1, 2, 3}, {4, 5, 6}})");
  const hlo_proto::Literal& literal = message.computations(0).instructions(0).literal();
  EXPECT_THAT(literal.shape().layout().minor_to_major(), ::testing::ElementsAre(0, 1));
  EXPECT_THAT(literal.f32s(), ::testing::ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(Proto, LoopBodiesPrecedeConditions) {
  const hlo_proto::Module message = ToMessage(R"(
c { a = s32[] parameter(0) ROOT t = pred[] constant(true) }
b { a = s32[] parameter(0) }
ENTRY e { x = s32[] parameter(0) ROOT w = s32[] while(x), condition=c, body=b })");
  EXPECT_EQ(message.computations(2).instructions(1).called_computation_ids(0), message.computations(1).id());
}

constexpr absl::string_view kCall = R"(
f { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] subtract(x, y) }
ENTRY e { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] negate(b) ROOT d = f32[] call(a, c), to_apply=f })";

// Changes the id of every instruction to id(computation id, position), and the operand ids and root ids that refer to
// it to reference(computation id, position). Returns the proto.
template <typename Id, typename Reference>
std::string Renumber(const Id& id, const Reference& reference) {
  hlo_proto::Module message = ToMessage(kCall);
  for (hlo_proto::Computation& computation : *message.mutable_computations()) {
    const int64_t first = computation.instructions(0).id();
    const int64_t c = computation.id();
    for (hlo_proto::Instruction& instruction : *computation.mutable_instructions()) {
      for (int i = 0; i < instruction.operand_ids_size(); ++i) {
        instruction.set_operand_ids(i, reference(c, instruction.operand_ids(i) - first));
      }
      instruction.set_id(id(c, instruction.id() - first));
    }
    computation.set_root_id(reference(c, computation.root_id() - first));
  }
  return message.SerializeAsString();
}

TEST(Proto, IdsMayBeUniquePerComputationOrPerModule) {
  const std::string text = ToText(ToProto(kCall));
  const auto local = [](int64_t, int64_t i) { return i; };
  const auto global = [](int64_t c, int64_t i) { return (c << 32) + i; };
  EXPECT_EQ(ToText(Renumber(local, local)), text);
  EXPECT_EQ(ToText(Renumber(global, global)), text);
  EXPECT_EQ(ToText(Renumber(local, global)), text);
  EXPECT_EQ(ToText(Renumber(global, local)), text);
}

// A message may be split into several pieces, and packed numbers may be separate. Readers merge them.
TEST(Proto, MessagesMayBeSplit) {
  const auto field = [](char tag, const std::string& bytes) {
    return std::string(1, tag) + static_cast<char>(bytes.size()) + bytes;
  };
  const std::string text = "f32[2,3] add(f32[2,3] x, f32[2,3] y), metadata={op_name=\"a\" source_line=3}";
  hlo_proto::Module message = ToMessage(text);
  hlo_proto::Computation computation = message.computations(0);
  hlo_proto::Instruction sum = computation.instructions(2), first, ids;
  computation.mutable_instructions()->RemoveLast();
  first.mutable_shape()->set_element_type(sum.shape().element_type());
  first.mutable_metadata()->set_op_name("a");
  sum.mutable_shape()->clear_element_type();
  sum.mutable_metadata()->clear_op_name();
  std::string operands;
  for (const int64_t id : sum.operand_ids()) operands += std::string("\xA0\x02") + static_cast<char>(id);
  sum.clear_operand_ids();
  const std::string bytes = first.SerializeAsString() + sum.SerializeAsString() + operands;
  ASSERT_LT(bytes.size(), 128u);
  message.clear_computations();
  const std::string pieces = computation.SerializeAsString() + field('\x12', bytes);
  const std::string length = {static_cast<char>(pieces.size() % 128 + 128), static_cast<char>(pieces.size() / 128)};
  EXPECT_EQ(ToText(message.SerializeAsString() + "\x1A" + length + pieces), ToText(ToProto(text)));
}

TEST(Proto, ReadsAModuleInsideAnHloProto) {
  hlo_proto::HloProto wrapper;
  *wrapper.mutable_hlo_module() = ToMessage(kCall);
  EXPECT_EQ(ToText(wrapper.SerializeAsString()), ToText(ToProto(kCall)));
}

TEST(Proto, LiteralsAreInLayoutOrder) {
  hlo_proto::Module message = ToMessage("f32[2,3] constant({{1, 2, 3}, {4, 5, 6}})");
  hlo_proto::Literal& literal = *message.mutable_computations(0)->mutable_instructions(0)->mutable_literal();
  literal.mutable_shape()->clear_no_layout();
  literal.mutable_shape()->mutable_layout()->set_minor_to_major(0, 0);
  literal.mutable_shape()->mutable_layout()->set_minor_to_major(1, 1);
  EXPECT_THAT(ToText(message.SerializeAsString()), HasSubstr("{{1, 3, 5}, {2, 4, 6}}"));
}

// A change that makes a proto defective, and the exact error.
struct BadProto {
  absl::string_view what;
  void (*damage)(hlo_proto::Module&);
  std::string error;
};

hlo_proto::Instruction& At(hlo_proto::Module& m, int computation, int instruction) {
  return *m.mutable_computations(computation)->mutable_instructions(instruction);
}

TEST(Proto, ErrorsNameComputationAndInstruction) {
  const BadProto table[] = {
      {"opcode", [](hlo_proto::Module& m) { At(m, 0, 2).set_opcode("substract"); },
       "computation %f: instruction %z: found unknown opcode \"substract\", expected an opcode of HLO, did you "
       "mean \"subtract\"?"},
      {"operand", [](hlo_proto::Module& m) { At(m, 0, 2).set_operand_ids(1, 77); },
       "computation %f: instruction %z: found operand id 77, expected the id of an instruction before this one"},
      {"forward", [](hlo_proto::Module& m) { At(m, 1, 2).set_operand_ids(0, At(m, 1, 3).id()); },
       "computation %e: instruction %c: found operand id 7, expected the id of an instruction before this one"},
      {"call", [](hlo_proto::Module& m) { At(m, 1, 3).set_called_computation_ids(0, 9); },
       "computation %e: instruction %d: found called computation id 9, expected that of a computation before this one"},
      {"itself", [](hlo_proto::Module& m) { At(m, 1, 3).set_called_computation_ids(0, 2); },
       "computation %e: instruction %d: found called computation id 2, expected that of a computation before this one"},
      {"root", [](hlo_proto::Module& m) { m.mutable_computations(0)->set_root_id(99); },
       "computation %f: found root id 99, expected the id of one of its instructions"},
      {"twice", [](hlo_proto::Module& m) { At(m, 0, 1).set_id(At(m, 0, 0).id()); },
       "computation %f: instruction %y: found instruction id 1 again, expected each once"},
      {"parameters", [](hlo_proto::Module& m) { At(m, 0, 1).set_parameter_number(5); },
       "computation %f: found 2 parameters, expected numbers 0 to 1, each once"},
      {"type", [](hlo_proto::Module& m) { At(m, 0, 0).mutable_shape()->set_element_type(99); },
       "computation %f: instruction %x: found element type number 99, expected a type of hlo.proto"},
      {"layout", [](hlo_proto::Module& m) { At(m, 0, 0).mutable_shape()->mutable_layout()->add_minor_to_major(3); },
       "computation %f: instruction %x: found a layout of f32[] that does not list each of its dimensions once, "
       "expected a permutation"},
      {"entry", [](hlo_proto::Module& m) { m.set_entry_computation_id(5); m.clear_entry_computation_name(); },
       "found entry computation id 5, expected the id of a computation"},
      {"alias", [](hlo_proto::Module& m) { m.mutable_input_output_alias()->add_entries()->set_parameter_number(2); },
       "found input_output_alias with parameter 2, expected 0 to 1"},
      {"sharding", [](hlo_proto::Module& m) { At(m, 0, 0).mutable_sharding()->set_type(8); },
       "computation %f: instruction %x: found sharding type 8, expected 0 to 6"},
      {"group", [](hlo_proto::Module& m) {
         At(m, 0, 0).mutable_sharding()->set_is_shard_group(true);
         At(m, 0, 0).mutable_sharding()->set_shard_group_type(2);
       }, "computation %f: instruction %x: found shard_group_type 2, expected 0 (as) or 1 (like)"},
      {"reduction", [](hlo_proto::Module& m) {
         At(m, 0, 0).mutable_sharding()->mutable_named_sharding()->set_reduction_op(3);
       }, "computation %f: instruction %x: found reduction_op 3 of a sharding, expected 0 (sum), 1 (max) or 2 (min)"},
      {"huge", [](hlo_proto::Module& m) {
         At(m, 0, 0).mutable_shape()->add_dimensions(int64_t{1} << 40);
         At(m, 0, 0).mutable_shape()->add_dimensions(int64_t{1} << 40);
       }, "computation %f: instruction %x: found shape f32[1099511627776,1099511627776], expected at most 2^62 bytes"},
  };
  for (const BadProto& row : table) {
    hlo_proto::Module message = ToMessage(kCall);
    row.damage(message);
    EXPECT_EQ(ToText(message.SerializeAsString()), row.error) << row.what;
  }
}

TEST(Proto, LiteralsOfTheWrongSizeAllocateNoMemory) {
  hlo_proto::Module message = ToMessage("f32[2] constant({1, 2})");
  hlo_proto::Instruction& constant = At(message, 0, 0);
  for (hlo_proto::Shape* const shape : {constant.mutable_shape(), constant.mutable_literal()->mutable_shape()}) {
    shape->set_dimensions(0, int64_t{1} << 50);
  }
  EXPECT_THAT(ToText(message.SerializeAsString()), HasSubstr("found 2 literal values, expected the 11258999068426"));
  constant.mutable_literal()->set_elided(true);
  EXPECT_THAT(ToText(message.SerializeAsString()), HasSubstr("constant({...})"));
}

TEST(Proto, TextInsideProtosIsChecked) {
  hlo_proto::Module message = ToMessage("f32[2]{0} negate(f32[2]{0} x)");
  At(message, 0, 1).set_other("delta=1}\n%evil = f32[] constant(1");
  EXPECT_THAT(ToText(message.SerializeAsString()), HasSubstr("expected name=value"));
  message = ToMessage("f32[2]{0} negate(f32[2]{0} x)");
  At(message, 0, 1).mutable_shape()->mutable_layout()->set_suffix("S(1)}");
  EXPECT_THAT(ToText(message.SerializeAsString()), HasSubstr("found layout"));
  message = ToMessage("f32[2]{0} negate(f32[2]{0} x)");
  At(message, 0, 1).set_name("a b%{\n");
  EXPECT_THAT(ToText(message.SerializeAsString()), HasSubstr("%a_b___ = "));
}

TEST(Proto, MalformedBytesAreRefused) {
  EXPECT_EQ(ToText("\x0a\xff\xff"), "found bytes that are not an HloModuleProto (cut short, or of another format)");
  EXPECT_EQ(ToText(""), "found a module without computations, expected an entry");
}

}  // namespace
}  // namespace xlad::hlo
