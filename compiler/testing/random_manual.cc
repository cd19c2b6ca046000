#include "compiler/testing/random_manual.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/analysis/hlo_names.h"
#include "compiler/testing/random_collectives.h"
#include "hlo/attribute_keys.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

using hlo::Builder;
using hlo::Computation;
using hlo::Instruction;
using hlo::Opcode;
using hlo::Shape;
using sharding::AxisList;
using tensor::Dims;

constexpr int64_t kMaxElements = 4 * RandomValues::kMaxElements;

// An array that enters or leaves a region: its shape after the crossing, and the manual axes of its dimensions.
struct Crossing {
  Shape shape;
  std::vector<AxisList> axes;
};

class ManualRegion {
 public:
  // `free` has the axes that are not manual in the computation around the region.
  ManualRegion(RandomControl& outer, const sharding::Mesh& mesh, const AxisList& free, int64_t* channels)
      : outer_(outer), mesh_(mesh), channels_(*channels), manual_(SomeAxes(free)), free_(Without(free, manual_)),
        inner_(&outer.module(), &outer.random(), outer.options(), [this](Builder& builder, const Pool& pool) {
          if (!free_.empty() && inner_.OneIn(3)) {
            return ManualRegion(inner_, mesh_, free_, &channels_).Make(builder, pool);
          }
          if (inner_.OneIn(4)) return AxisIndex(builder);
          return RandomCollective(inner_, builder, pool, mesh_.Groups(SomeAxes(manual_)), ++channels_);
        }) {
    inner_.set_uniform_control(true);
  }

  Sample Make(Builder& builder, const Pool& pool) {
    Pool arguments;
    std::vector<Crossing> crossings;
    for (int p = 1 + outer_.Below(3); p > 0; --p) {
      arguments.push_back(outer_.Pick(pool));
      crossings.push_back(Enter(arguments.back().array->shape()));
    }
    Computation* body = outer_.module().Add(std::make_unique<Computation>("manual"));
    Builder inside(body);
    Pool values;
    for (size_t p = 0; p < arguments.size(); ++p) {
      values.push_back(Like(arguments[p], inside.Parameter(p, crossings[p].shape)));
      inner_.SetAgreement(values.back().array, outer_.AgreementOf(arguments[p].array));
    }
    inner_.AddValues(inside, &values, 1 + outer_.Below(8), 1);
    Crossing out;
    const Sample result = Leave(inside, values.back(), &out);
    if (!result) return {};
    body->set_root(result.array);
    Instruction* local = builder.Call(body, Local(builder, arguments, crossings));
    Instruction* global = Cross(builder, {local}, hlo::kLeaveManualCall, hlo::kOutShardingsKey, {out});
    outer_.SetAgreement(global, inner_.AgreementOf(result.array));
    return Like(result, global);
  }

 private:
  static AxisList Without(AxisList axes, const AxisList& gone) {
    std::erase_if(axes, [&](const auto& axis) { return std::find(gone.begin(), gone.end(), axis) != gone.end(); });
    return axes;
  }

  // Returns some of the axes, at least one.
  AxisList SomeAxes(const AxisList& axes) {
    AxisList some;
    for (const sharding::AxisRef& axis : axes) {
      if (outer_.OneIn(2)) some.push_back(axis);
    }
    if (some.empty()) some.push_back(axes[outer_.Below(std::ssize(axes))]);
    return some;
  }

  // jax.lax.axis_index: the device's position along one of the axes.
  Sample AxisIndex(Builder& builder) {
    const sharding::AxisRef axis = manual_[outer_.Below(std::ssize(manual_))];
    int64_t stride = 1;
    for (size_t a = mesh_.axes().size(); a-- > static_cast<size_t>(axis.axis) + 1;) stride *= mesh_.axes()[a].size;
    const Shape scalar(hlo::ElementType::kU32, {});
    Instruction* id = builder.computation()->Add(std::make_unique<Instruction>(Opcode::kPartitionId, scalar), {});
    const auto number = [&](int64_t n) { return builder.Scalar(hlo::ElementType::kU32, static_cast<double>(n)); };
    Instruction* index = builder.Binary(Opcode::kRemainder, builder.Binary(Opcode::kDivide, id, number(stride)),
                                         number(axis.size));
    return {builder.Convert(hlo::ElementType::kS32, index)};
  }

  // Splits a global shape along dimensions whose sizes are multiples of the axes' sizes.
  Crossing Enter(Shape shape) {
    Crossing crossing{shape, std::vector<AxisList>(static_cast<size_t>(shape.ndim()))};
    Dims dims = shape.dims();
    for (const sharding::AxisRef& axis : manual_) {
      if (dims.empty() || outer_.OneIn(4)) continue;
      const size_t d = outer_.Below(shape.ndim());
      if (dims[d] % axis.size != 0) continue;
      dims[d] /= axis.size;
      crossing.axes[d].push_back(axis);
    }
    crossing.shape = Shape(shape.type(), dims);
    return crossing;
  }

  // Returns the value in a form that may leave the region: concatenated along some of the axes, replicated along the
  // others.
  Sample Leave(Builder& inside, Sample x, Crossing* crossing) {
    if (x.ndim() == 0) x.array = inside.Reshape(x.array, {1});
    Dims dims = x.dims();
    crossing->axes.resize(dims.size());
    for (const sharding::AxisRef& axis : manual_) {
      if (!tensor::IsComplex(x.type()) && x.finite() && outer_.OneIn(3)) {
        x = LargestOfGroup(inner_, inside, x, mesh_.Groups({axis}), ++channels_);
        continue;
      }
      const size_t d = outer_.Below(x.ndim());
      dims[d] *= axis.size;
      crossing->axes[d].push_back(axis);
    }
    crossing->shape = Shape(x.type(), dims);
    return crossing->shape.elements() <= kMaxElements ? x : Sample();
  }

  std::vector<Instruction*> Local(Builder& builder, const Pool& arguments, const std::vector<Crossing>& crossings) {
    std::vector<Instruction*> operands, local;
    for (const Sample& argument : arguments) operands.push_back(argument.array);
    Instruction* entered =
        Cross(builder, operands, hlo::kEnterManualCall, hlo::kInShardingsKey, crossings);
    if (crossings.size() == 1) return {entered};
    for (size_t p = 0; p < crossings.size(); ++p) {
      local.push_back(builder.GetTupleElement(entered, p));
    }
    return local;
  }

  Instruction* Cross(Builder& builder, const std::vector<Instruction*>& operands, const char* target,
                     const char* attribute, const std::vector<Crossing>& crossings) {
    std::vector<Shape> shapes;
    std::vector<std::string> shardings;
    for (const Crossing& crossing : crossings) {
      shapes.push_back(crossing.shape);
      shardings.push_back(Text(crossing));
    }
    auto call = std::make_unique<Instruction>(Opcode::kCustomCall,
                                              shapes.size() == 1 ? shapes[0] : Shape::Tuple(shapes));
    call->mutable_attributes().custom_call_target = target;
    call->mutable_attributes().has_side_effect = true;
    std::vector<std::string> manual;
    for (const sharding::AxisRef& axis : manual_) manual.push_back(Quoted(axis));
    auto& attributes = call->mutable_frontend_attributes();
    attributes[hlo::kSdyManualAxesKey] = absl::StrCat("#sdy<manual_axes{", absl::StrJoin(manual, ", "), "}>");
    attributes[attribute] = absl::StrCat("#sdy.sharding_per_value<[", absl::StrJoin(shardings, ", "), "]>");
    return builder.computation()->Add(std::move(call), operands);
  }

  // The text in Shardy's syntax. Dimensions are open to the free axes, or closed.
  std::string Text(const Crossing& crossing) {
    std::vector<std::string> dims;
    for (const AxisList& axes : crossing.axes) {
      std::vector<std::string> words;
      for (const sharding::AxisRef& axis : axes) words.push_back(Quoted(axis));
      if (outer_.OneIn(2)) words.push_back("?");
      dims.push_back(absl::StrCat("{", absl::StrJoin(words, ", "), "}"));
    }
    return absl::StrCat("<@mesh, [", absl::StrJoin(dims, ", "), "]>");
  }
  std::string Quoted(const sharding::AxisRef& axis) const {
    return absl::StrCat("\"", mesh_.axes()[axis.axis].name, "\"");
  }

  RandomControl& outer_;
  const sharding::Mesh& mesh_;
  int64_t& channels_;
  const AxisList manual_, free_;
  RandomControl inner_;
};

}  // namespace

Sample RandomManual(RandomControl& random, Builder& builder, const Pool& pool, const sharding::Mesh& mesh,
                    int64_t* channels) {
  AxisList all;
  for (size_t a = 0; a < mesh.axes().size(); ++a) all.push_back(mesh.Whole(static_cast<int>(a)));
  return ManualRegion(random, mesh, all, channels).Make(builder, pool);
}

}  // namespace xlad::compiler
