#include "compiler/testing/random_program.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/analysis/hlo_names.h"
#include "compiler/testing/random_collectives.h"
#include "compiler/testing/random_control.h"
#include "compiler/testing/random_manual.h"
#include "hlo/attribute_keys.h"
#include "hlo/build/builder.h"
#include "sharding/model/axes.h"
#include "sharding/testing/random_sharding.h"

namespace xlad::compiler {
namespace {

using hlo::Builder;
using hlo::Opcode;

// One group of all devices, or two groups with half of the devices each. The ids in a group are in descending order.
DeviceGroups RandomGroups(RandomControl& random, int devices) {
  DeviceGroups groups;
  const int size = devices % 2 == 0 && random.OneIn(2) ? devices / 2 : devices;
  for (int first = 0; first < devices; first += size) {
    groups.emplace_back();
    for (int d = size - 1; d >= 0; --d) groups.back().push_back(first + d);
  }
  return groups;
}

// Some parameters have equal shapes, so that a parameter can be returned in the buffer of another parameter.
Pool Parameters(RandomControl& random, Builder& builder, std::vector<bool>* special) {
  Pool pool;
  for (int p = 2 + random.Below(3); p > 0; --p) {
    ElementType type = random.RandomType();
    if (tensor::IsComplex(type)) type = ElementType::kF32;
    Shape shape(type, random.RandomDims(4));
    if (!pool.empty() && random.OneIn(3)) shape = pool[random.Below(std::ssize(pool))].array->shape();
    special->push_back(random.options().specials && !pool.empty() && random.OneIn(2));
    const bool unbounded = special->back() && tensor::IsFloating(shape.type());
    pool.push_back({builder.Parameter(std::ssize(pool), shape), unbounded ? kUnbounded : 2, 3, 0});
  }
  return pool;
}

// Makes the root a tuple of several values of the pool, some of which are aliased with a parameter. If the option
// all_results is set, all values that no instruction uses are among them.
std::vector<Exactness> MakeRoot(RandomControl& random, Builder& builder, const Pool& pool) {
  hlo::Module& module = random.module();
  Pool results;
  for (const Sample& value : pool) {
    const bool is_unused = value.array->users().empty() && value.array->opcode() != Opcode::kParameter;
    if (random.options().all_results && is_unused) results.push_back(value);
  }
  for (int i = 2 + random.Below(4); i > 0; --i) results.push_back(random.Pick(pool));
  const std::vector<Instruction*> parameters = builder.computation()->parameters();
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (random.OneIn(2)) continue;
    hlo::InputOutputAlias alias;
    alias.output_index = {std::ssize(results)};
    alias.parameter = p;
    module.input_output_alias.push_back(alias);
    const Shape& shape = parameters[p]->shape();
    const Sample result = random.OneIn(4) ? pool[random.Below(std::ssize(parameters))] : random.Pick(pool);
    results.push_back(random.Fit(builder, result, shape.type(), shape.dims()));
  }
  std::vector<Instruction*> arrays;
  std::vector<Exactness> exactness;
  for (const Sample& result : results) {
    arrays.push_back(result.array);
    exactness.push_back({random.AgreementOf(result.array), result.error});
  }
  builder.computation()->set_root(builder.Tuple(arrays));
  return exactness;
}

RandomModule Generate(RandomControl& random, int instructions) {
  hlo::Module& module = random.module();
  Computation* entry = module.Add(std::make_unique<Computation>("main"));
  module.set_entry(entry);
  Builder builder(entry);
  RandomModule result;
  Pool pool = Parameters(random, builder, &result.special);
  random.AddValues(builder, &pool, instructions, 0);
  result.exactness = MakeRoot(random, builder, pool);
  return result;
}

sharding::Mesh RandomMesh(Random* random) {
  static constexpr const char* kMeshes[] = {"x=2", "x=3", "x=4", "x=5", "x=6", "x=7", "x=8", "x=2,y=2", "x=2,y=3",
                                            "x=3,y=2", "x=4,y=2", "x=2,y=4", "x=2,y=2,z=2", "x=1,y=3"};
  return *sharding::ParseMesh(kMeshes[random->Below(std::size(kMeshes))]);
}

// A random sharding of an array with `ndim` dimensions, in Shardy's syntax.
std::string RandomAnnotation(const sharding::Mesh& mesh, int64_t ndim, Random* random) {
  sharding::TensorSharding sharding = sharding::RandomSharding(mesh, ndim, *random);
  const bool priorities = random->Below(4) == 0;
  for (sharding::DimensionSharding& dim : sharding.dims) {
    dim.closed = random->Below(2) == 0;
    if (priorities && !dim.axes.empty()) dim.priority = static_cast<int>(random->Below(3));
  }
  sharding::AxisList used;
  for (const auto& dim : sharding.dims) used.insert(used.end(), dim.axes.begin(), dim.axes.end());
  for (const sharding::AxisRef& axis : sharding::UnusedAxes(mesh, used)) {
    if (axis.size == 1) continue;
    const uint64_t kind = random->Below(8);
    if (kind == 0) sharding.replicated.push_back(axis);
    if (kind == 1) sharding.unreduced.push_back(axis);
  }
  return absl::StrCat("<@mesh, ", sharding::ToString(mesh, sharding), ">");
}

class Annotator {
 public:
  Annotator(const sharding::Mesh* mesh, Random* random) : mesh_(*mesh), random_(*random) {}

  void Parameter(Instruction* parameter) {
    if (random_.Below(3) == 0) return;
    parameter->mutable_frontend_attributes()[hlo::kShardingKey] =
        absl::StrCat("#sdy.sharding", RandomAnnotation(mesh_, parameter->shape().ndim(), &random_));
  }

  Instruction* Constraint(Builder& builder, Instruction* x, const char* target) {
    auto call = std::make_unique<Instruction>(Opcode::kCustomCall, x->shape());
    call->mutable_attributes().custom_call_target = target;
    call->mutable_attributes().has_side_effect = target != std::string("Sharding");
    call->mutable_frontend_attributes()[hlo::kShardingKey] = absl::StrCat(
        "#sdy.sharding_per_value<[", RandomAnnotation(mesh_, x->shape().ndim(), &random_), "]>");
    return builder.computation()->Add(std::move(call), {x});
  }

  Instruction* Barrier(Builder& builder, Instruction* x) {
    auto call = std::make_unique<Instruction>(Opcode::kCustomCall, x->shape());
    call->mutable_attributes().custom_call_target = hlo::kPropagationBarrierCall;
    call->mutable_frontend_attributes()[hlo::kAllowedDirectionKey] = absl::StrCat(random_.Below(4), " : i32");
    return builder.computation()->Add(std::move(call), {x});
  }

  // Constrains some of the results.
  void Results(Builder& builder) {
    Instruction* root = builder.computation()->root();
    for (int64_t r = 0; r < root->operand_count(); ++r) {
      if (random_.Below(2) == 0) continue;
      root->ReplaceOperand(r, Constraint(builder, root->operand(r), hlo::kResultShardingCall));
    }
    builder.computation()->SortTopologically();
  }

 private:
  const sharding::Mesh& mesh_;
  Random& random_;
};

}  // namespace

RandomModule RandomLocalProgram(uint64_t seed, int instructions, int devices) {
  const std::unique_ptr<Random> random = SeededRandom(seed);
  auto module = std::make_unique<Module>("random");
  module->num_partitions = devices;
  RandomControl* self = nullptr;
  int64_t channels = 0;
  RandomControl::Options options;
  options.specials = random->Below(2) == 0;
  options.all_results = random->Below(2) == 0;
  RandomControl control(module.get(), random.get(), options, [&](Builder& builder, const Pool& pool) {
    return devices > 1 ? RandomCollective(*self, builder, pool, RandomGroups(*self, devices), ++channels) : Sample();
  });
  self = &control;
  control.set_uniform_control(devices > 1);
  RandomModule result = Generate(control, instructions);
  module->RemoveUnusedComputations();
  module->SortComputations();
  result.module = std::move(module);
  return result;
}

RandomUserProgram RandomAnnotatedProgram(uint64_t seed, int instructions, bool manual) {
  const std::unique_ptr<Random> random = SeededRandom(seed);
  RandomUserProgram result;
  result.mesh = RandomMesh(random.get());
  auto module = std::make_unique<Module>("random");
  module->num_partitions = result.mesh.devices();
  std::vector<std::string> axes;
  for (const sharding::Axis& axis : result.mesh.axes()) axes.push_back(absl::StrCat("\"", axis.name, "\"=", axis.size));
  std::string list;
  for (const std::string& axis : axes) absl::StrAppend(&list, list.empty() ? "" : ", ", axis);
  module->frontend_attributes[hlo::kMeshesKey] = absl::StrCat("{mesh = #sdy.mesh<[", list, "]>}");
  Annotator annotator(&result.mesh, random.get());
  RandomControl* self = nullptr;
  int64_t channels = 0;
  RandomControl::Options options;
  options.specials = random->Below(2) == 0;
  options.all_results = true;
  options.sums_split = true;
  options.library_calls = !manual;
  RandomControl control(module.get(), random.get(), options, [&](Builder& builder, const Pool& pool) {
    if (manual && self->OneIn(2)) return RandomManual(*self, builder, pool, result.mesh, &channels);
    const Sample x = self->Pick(pool);
    return Like(x, self->OneIn(5) ? annotator.Barrier(builder, x.array)
                                  : annotator.Constraint(builder, x.array, "Sharding"));
  });
  self = &control;
  result.program = Generate(control, instructions);
  for (Instruction* parameter : module->entry()->parameters()) annotator.Parameter(parameter);
  Builder builder(module->entry());
  annotator.Results(builder);
  module->RemoveUnusedComputations();
  module->SortComputations();
  result.program.module = std::move(module);
  return result;
}

std::unique_ptr<Module> RandomProgram(uint64_t seed, int instructions, int devices) {
  return RandomLocalProgram(seed, instructions, devices).module;
}

}  // namespace xlad::compiler
