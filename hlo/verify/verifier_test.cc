// Rules whose violations are made in code, mostly because the parser refuses a text that violates them. Also the places
// in errors, limits, and valid programs.
#include "hlo/verify/verifier.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "gtest/gtest.h"
#include "hlo/build/builder.h"
#include "hlo/testing/fuzz_time.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"

namespace xlad::hlo {
namespace {

// A valid program for the tests to break: main(x: f32[4]) = negate(x), and a second computation f(y) = abs(y).
struct ValidProgram {
  Module module{"m"};
  Computation* f = module.Add(std::make_unique<Computation>("f"));
  Computation* main = module.Add(std::make_unique<Computation>("main"));
  Builder builder{main};
  Instruction *x = nullptr, *root = nullptr, *y = nullptr;

  ValidProgram() {
    const Shape vector(ElementType::kF32, {4});
    Builder other(f);
    y = other.Parameter(0, vector, "y");
    f->set_root(other.Unary(Opcode::kAbs, y));
    x = builder.Parameter(0, vector, "x");
    root = builder.Unary(Opcode::kNegate, x);
    main->set_root(root);
    module.set_entry(main);
  }
  Instruction* Add(Opcode opcode, Shape shape, std::vector<Instruction*> operands) {
    return main->Add(std::make_unique<Instruction>(opcode, std::move(shape)), operands);
  }
};

struct BrokenCase {
  const char* label;
  const char* message;
  std::function<void(ValidProgram&)> break_it;
};

Shape Deep(int64_t depth) {
  Shape shape;
  for (int64_t i = 0; i < depth; ++i) shape = Shape::Tuple({shape});
  return shape;
}

std::vector<BrokenCase> StructureCases() {
  return {
      {"module-entry", "module m: found no entry computation, expected one marked ENTRY",
       [](ValidProgram& p) { p.module.set_entry(nullptr); }},
      {"computation-root", "computation %main: found no ROOT, expected one",
       [](ValidProgram& p) { p.main->set_root(nullptr); }},
      {"computation-root", "computation %main: found root %y of another computation, expected one of its own",
       [](ValidProgram& p) { p.main->set_root(p.y); }},
      {"operand-computation", "%negate: found operand %y of another computation, expected one of %main",
       [](ValidProgram& p) { p.root->ReplaceOperand(0, p.y); }},
      {"operand-order",
       "%abs.1: found operand %abs.2 at or after its user, expected operands before users, without cycles",
       [](ValidProgram& p) {
         Instruction* const a = p.builder.Unary(Opcode::kAbs, p.x);
         a->ReplaceOperand(0, p.builder.Unary(Opcode::kAbs, a));
       }},
      {"operand-order",
       "%negate: found control predecessor %negate at or after its user, expected operands before users, without "
       "cycles",
       [](ValidProgram& p) { p.root->AddControlPredecessor(p.root); }},
      {"parameter-numbers", "computation %main: found no parameter(1), expected all of 0 to 2",
       [](ValidProgram& p) { p.builder.Parameter(2, Shape(ElementType::kF32, {})); }},
      {"parameter-numbers", "%again: found parameter(0) a second time, expected numbers 0, 1, ... each once",
       [](ValidProgram& p) { p.builder.Parameter(0, Shape(ElementType::kF32, {}), "again"); }},
      {"parameter-numbers", "%far: found parameter(99999), expected numbers 0, 1, ... each once",
       [](ValidProgram& p) { p.builder.Parameter(99999, Shape(ElementType::kF32, {}), "far"); }},
      {"call-cycle", "%call: found a call that leads back to %f, expected calls without recursion",
       [](ValidProgram& p) { Builder(p.f).Call(p.f, {p.y}); }},
      {"called-computation",
       "%call: found call of a computation that the module does not have, expected a computation of the module",
       [](ValidProgram& p) { p.Add(Opcode::kCall, p.x->shape(), {p.x})->mutable_called() = {nullptr}; }},
      {"called-computations", "%negate: found 1 called computation, expected none of negate",
       [](ValidProgram& p) { p.root->mutable_called() = {p.f}; }},
  };
}

std::vector<BrokenCase> BrokenShapeCases() {
  return {
      {"shape-type", "%abs: found an invalid element type, expected a known one",
       [](ValidProgram& p) { p.y->users()[0]->mutable_shape() = Shape(ElementType::kInvalid, {}); }},
      {"layout-order", "%negate: found layout {0,1} of f32[4], expected an order of 1 dimension",
       [](ValidProgram& p) { p.root->mutable_shape().set_layout({{0, 1}, ""}); }},
      {"layout-order", "%negate: found dimension 1, expected 0 to 0",
       [](ValidProgram& p) { p.root->mutable_shape().set_layout({{1}, ""}); }},
      {"shape-depth", "%negate: found tuples nested more than 64 deep, expected fewer",
       [](ValidProgram& p) { p.root->mutable_shape() = Deep(65); }},
      {"constant-literal", "%constant: found no value, expected a value of shape f32[]",
       [](ValidProgram& p) { p.Add(Opcode::kConstant, Shape(ElementType::kF32, {}), {}); }},
      {"constant-literal", "%constant: found a value of shape f32[], expected f32[2]",
       [](ValidProgram& p) {
         p.builder.Scalar(ElementType::kF32, 1)->mutable_shape() = Shape(ElementType::kF32, {2});
       }},
      {"dot-dims", "%dot: found no dimension numbers, expected lhs_contracting_dims and rhs_contracting_dims",
       [](ValidProgram& p) { p.Add(Opcode::kDot, Shape(ElementType::kF32, {}), {p.x, p.x}); }},
  };
}

std::vector<BrokenCase> HeaderAndGroupCases() {
  return {
      {"entry-layout", "module m: found 0 parameters, expected 1, as the entry has",
       [](ValidProgram& p) { p.module.has_entry_layout = true; }},
      {"entry-layout", "module m: found result of shape (), expected f32[4], as the entry has",
       [](ValidProgram& p) {
         p.module.has_entry_layout = true;
         p.module.entry_parameter_layouts = {p.x->shape()};
       }},
      {"donor-parameter",
       "module m: found parameter 1 {}, expected a part of a parameter of the entry, which has 1 parameter",
       [](ValidProgram& p) { p.module.buffer_donors = {{1, {}}}; }},
      {"device-count",
       "module m: found replica_count=1, num_partitions=0, expected 1 or more each, and at most 16777216 together",
       [](ValidProgram& p) { p.module.num_partitions = 0; }},
      {"replica-groups", "%permute: found several forms at once, expected one",
       [](ValidProgram& p) {
         ReplicaGroups& groups =
             p.Add(Opcode::kCollectivePermute, p.x->shape(), {p.x})->mutable_attributes().replica_groups;
         p.main->instructions().back()->set_name("permute");
         groups.groups = {{0}};
         groups.iota = {{1, 1}, {1}, {}};
       }},
      {"replica-groups-iota", "%gather: found {2,2} of {8}, expected [groups,size] with the same product",
       [](ValidProgram& p) {
         Instruction* const gather = p.Add(Opcode::kAllGather, p.x->shape(), {p.x});
         gather->set_name("gather");
         gather->mutable_attributes().replica_groups.iota = {{2, 2}, {8}, {}};
       }},
      {"replica-groups-mesh", "%gather: found axis 'b', expected an axis of the mesh",
       [](ValidProgram& p) {
         Instruction* const gather = p.Add(Opcode::kAllGather, p.x->shape(), {p.x});
         gather->set_name("gather");
         auto& mesh = gather->mutable_attributes().replica_groups.mesh_axes.emplace();
         mesh.mesh = {{"a", 2}};
         mesh.axes = {{"b"}};
       }},
      {"replica-groups-mesh", "%gather: found axes that overlap, expected disjoint parts of axes",
       [](ValidProgram& p) {
         Instruction* const gather = p.Add(Opcode::kAllGather, p.x->shape(), {p.x});
         gather->set_name("gather");
         auto& mesh = gather->mutable_attributes().replica_groups.mesh_axes.emplace();
         mesh.mesh = {{"a", 4}};
         mesh.axes = {{"a", 1, 4}, {"a", 2, 2}};
       }},
  };
}

std::vector<BrokenCase> OtherCases() {
  return {
      {"sharding-tiles", "%negate: found tile sizes {0}, expected 1 or more each, and at most 16777216 tiles",
       [](ValidProgram& p) {
         auto sharding = std::make_unique<OpSharding>();
         sharding->kind = OpSharding::Kind::kTiled;
         sharding->tile_dims = {0};
         p.root->set_sharding(std::move(sharding));
       }},
      {"sharding-transpose", "%negate: found {0}, expected a permutation of 2",
       [](ValidProgram& p) {
         auto sharding = std::make_unique<OpSharding>();
         sharding->kind = OpSharding::Kind::kTiled;
         sharding->tile_dims = {4};
         sharding->iota_reshape_dims = {2, 2};
         sharding->iota_transpose = {0};
         p.root->set_sharding(std::move(sharding));
       }},
      {"async-pair", "%done: found operand parameter, expected all-gather-start",
       [](ValidProgram& p) { p.Add(Opcode::kAllGatherDone, p.x->shape(), {p.x})->set_name("done"); }},
  };
}

std::vector<BrokenCase> Cases() {
  std::vector<BrokenCase> all;
  for (const std::vector<BrokenCase>& part :
       {StructureCases(), BrokenShapeCases(), HeaderAndGroupCases(), OtherCases()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST(VerifierTest, ModulesMadeInCodeAreChecked) {
  ASSERT_TRUE(Verify(ValidProgram().module).ok()) << Verify(ValidProgram().module);
  for (const BrokenCase& bad : Cases()) {
    ValidProgram program;
    bad.break_it(program);
    const absl::Status status = Verify(program.module);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), absl::StrCat(bad.message, " [", bad.label, "]"));
  }
}

TEST(VerifierTest, ErrorsHaveThePlaceInTheText) {
  const auto module =
      ParseText("HloModule m\n\nENTRY main {\n  x = f32[2] parameter(0)\n\n    ROOT y = f32[3] abs(x)\n}\n");
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(Verify(**module).message(),
            "6:5: %y: found result f32[3], expected f32[2], the result shape of abs [result-shape]");
}

// Opcodes that only copy sizes or require equal sizes.
TEST(VerifierTest, UnknownSizesAreAccepted) {
  const auto module = ParseText(TestText("hlo/testdata/unknown_sizes.hlo"));
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(Verify(**module).ok()) << Verify(**module);
}

// Seven levels of tuples with 5 equal elements have 78125 arrays, more parts than the verifier allows.
TEST(VerifierTest, PartsAreBounded) {
  Shape shape(ElementType::kPred, {});
  for (int i = 0; i < 7; ++i) shape = Shape::Tuple({shape, shape, shape, shape, shape});
  ValidProgram p;
  p.root->mutable_shape() = shape;
  EXPECT_EQ(Verify(p.module).message(),
            "%negate: found a tuple of more than 65536 parts, expected fewer [shape-parts]");
}

// Many collectives over so many devices that listing their groups would take too long.
TEST(VerifierTest, GroupsAreNotExpanded) {
  const std::vector<std::pair<std::string, std::string>> programs = {
      {"1048576", "[1048576,1]<=[1024,1024]T(1,0)"},
      {"1048576", "[1,1048576]<=[1048576]"},
      {"1048576", "mesh['a'=1024,'b'=1024] {}"},
      {"1048576", "mesh['a'=1024,'b'=1024] {'b', 'a':(2)4}"},
  };
  const FuzzTime limit;
  for (const auto& [devices, groups] : programs) {
    std::string text = "HloModule m, num_partitions=" + devices +
                       "\nadd { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b) }\n"
                       "ENTRY main {\n  x = f32[2] parameter(0)\n";
    for (int i = 0; i < 400; ++i) {
      text += "  y" + std::to_string(i) + " = f32[2] all-reduce(x), channel_id=1, use_global_device_ids=true, " +
              "to_apply=add, replica_groups=" + groups + "\n";
    }
    const auto module = ParseText(text + "}\n");
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_TRUE(Verify(**module).ok()) << Verify(**module);
  }
}

std::vector<std::string> HloFilesUnder(const char* variable) {
  std::vector<std::string> files;
  const char* const folder = std::getenv(variable);
  if (folder == nullptr) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".hlo") files.push_back(entry.path().string());
  }
  return files;
}

class GoodProgramsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoodProgramsTest, Verify) {
  const std::vector<std::string> files = HloFilesUnder(GetParam());
  if (files.empty()) GTEST_SKIP() << GetParam() << " is not set";
  for (const std::string& file : files) {
    std::ifstream stream(file, std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    const auto module = ParseText(text.str());
    ASSERT_TRUE(module.ok()) << file << ": " << module.status();
    EXPECT_TRUE(hlo::Verify(**module).ok()) << file << ": " << hlo::Verify(**module);
    EXPECT_TRUE(hlo::Verify(*(*module)->Clone()).ok()) << file;
  }
}

INSTANTIATE_TEST_SUITE_P(, GoodProgramsTest, ::testing::Values("XLAD_EXAMPLES", "XLAD_CONFORMANCE"));

}  // namespace
}  // namespace xlad::hlo
