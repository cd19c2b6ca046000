#include "compiler/kernel/interpret.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/container/flat_hash_set.h"
#include "base/counted.h"
#include "compiler/analysis/plain_reducer.h"
#include "compiler/kernel/interpret_product.h"
#include "compiler/kernel/product_schedule.h"
#include "hlo/eval/evaluate.h"
#include "tensor/element_type.h"

namespace xlad::compiler {
namespace {

using hlo::Literal;
using tensor::Array;
using Scalars = std::vector<Array>;

int64_t BytesOf(ElementType type) { return tensor::ByteWidth(type); }

Scalars ScalarsOf(const Literal& literal) {
  if (!literal.is_tuple) return {literal.array};
  Scalars scalars;
  for (const Literal& element : literal.tuple) scalars.push_back(element.array);
  return scalars;
}

// The identity element of a reducer that has several lanes.
Array Neutral(const Computation& reducer) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double value = -0.0;
  const Opcode opcode = *PlainReducer(reducer);
  if (opcode == Opcode::kMultiply) value = 1;
  if (opcode == Opcode::kMaximum) value = -kInfinity;
  if (opcode == Opcode::kMinimum) value = kInfinity;
  const ElementType type = reducer.root()->shape().type();
  if (type == ElementType::kF64) return Array::FromValues<double>(type, {}, {value});
  return Array::FromValues<float>(type, {}, {static_cast<float>(value)});
}

class Interpreter {
 public:
  explicit Interpreter(const ScheduledKernel& scheduled)
      : scheduled_(scheduled),
        kernel_(scheduled.kernel),
        iterations_(scheduled.loops.size(), 0),
        accumulators_(kernel_.statements.size()) {}

  absl::StatusOr<KernelRun> Run(const std::vector<Array>& inputs) {
    size_t next = 0;
    for (size_t a = 0; a < kernel_.arrays.size(); ++a) {
      const KernelArray& array = kernel_.arrays[a];
      const int64_t staged = scheduled_.staged[a].elements;
      if (array.role != KernelArray::Role::kInput) {
        memory_.emplace_back(tensor::Shape{array.type, {staged > 0 ? staged : array.elements}});
        continue;
      }
      if (next == inputs.size()) return WrongInput(absl::StrCat("no input for ", array.name), Sized(array));
      const Array& input = inputs[next++];
      if (input.shape().type != array.type || input.elements() != array.elements) {
        return WrongInput(absl::StrCat(input.shape().ToString(), " for ", array.name), Sized(array));
      }
      memory_.push_back(input);
    }
    if (next != inputs.size()) return WrongInput(Counted(inputs.size(), "input"), absl::StrCat(next));
    XLAD_RETURN_IF_ERROR(RunNodes(scheduled_.nest, 0));
    for (size_t a = 0; a < kernel_.arrays.size(); ++a) {
      if (kernel_.arrays[a].role == KernelArray::Role::kOutput) run_.outputs.push_back(memory_[a]);
    }
    return std::move(run_);
  }

 private:
  absl::Status WrongInput(absl::string_view found, absl::string_view expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel ", kernel_.name, ": found ", found, ", expected ", expected));
  }
  static std::string Sized(const KernelArray& array) {
    return absl::StrCat(tensor::ToString(array.type), " with ", Counted(array.elements, "element"));
  }

  absl::Status RunNodes(const std::vector<NestNode>& nodes, size_t depth) {
    // A new iteration of the bound loops begins with an empty cache.
    if (depth == scheduled_.bound.size()) cached_.clear();
    for (const NestNode& node : nodes) {
      switch (node.kind) {
        case NestNode::Kind::kStart:
          XLAD_RETURN_IF_ERROR(Start(node.index));
          break;
        case NestNode::Kind::kCompute:
          XLAD_RETURN_IF_ERROR(Compute(node.index));
          break;
        case NestNode::Kind::kFinish:
          XLAD_RETURN_IF_ERROR(Finish(node.index));
          break;
        case NestNode::Kind::kLoop:
          for (int64_t i = 0; i < SizeOf(node.index); ++i) {
            iterations_[node.index] = i;
            XLAD_RETURN_IF_ERROR(RunNodes(node.body, depth + 1));
          }
          iterations_[node.index] = 0;
          break;
      }
    }
    return absl::OkStatus();
  }

  // In a split, the last iteration of the outer loop may have fewer inner iterations.
  int64_t SizeOf(int loop) const {
    for (size_t outer = 0; outer < scheduled_.loops.size(); ++outer) {
      if (scheduled_.loops[outer].inner != loop) continue;
      const int64_t size = kernel_.dims[scheduled_.loops[outer].dim].size;
      return std::min(scheduled_.loops[loop].size, size - iterations_[outer] * scheduled_.loops[outer].factor);
    }
    return scheduled_.loops[loop].size;
  }

  Dims Indices() const {
    Dims indices(kernel_.dims.size(), 0);
    for (size_t l = 0; l < scheduled_.loops.size(); ++l) {
      indices[scheduled_.loops[l].dim] += iterations_[l] * scheduled_.loops[l].factor;
    }
    return indices;
  }

  int64_t PlaceOf(int array, const Affine& at) const {
    const StagedArray& staged = scheduled_.staged[array];
    if (staged.elements == 0) return ValueOf(at, Indices());
    int64_t place = 0;
    for (size_t l = 0; l < staged.factors.size(); ++l) place += staged.factors[l] * iterations_[l];
    return place;
  }

  Array Load(const KernelRead& read) {
    if (read.array == KernelRead::kPosition) {
      return Array::FromValues<int64_t>(ElementType::kS64, {}, {ValueOf(read.at, Indices())});
    }
    const int64_t place = PlaceOf(read.array, read.at), width = BytesOf(kernel_.arrays[read.array].type);
    if (Touch(read.array, place)) run_.bytes_read += width;
    Array scalar(tensor::Shape{kernel_.arrays[read.array].type, {}});
    std::memcpy(scalar.bytes().data(), memory_[read.array].bytes().data() + place * width, width);
    return scalar;
  }

  void Store(const Statement& statement, const Scalars& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      const int array = statement.results[i];
      const int64_t place = PlaceOf(array, statement.at), width = BytesOf(kernel_.arrays[array].type);
      if (Touch(array, place)) run_.bytes_written += width;
      std::memcpy(memory_[array].bytes().data() + place * width, values[i].bytes().data(), width);
    }
  }

  // Whether this access moves the element between memory and the cache.
  bool Touch(int array, int64_t place) {
    return scheduled_.staged[array].elements == 0 && cached_.insert({array, place}).second;
  }

  absl::StatusOr<Scalars> Apply(const Module& code, const Scalars& arguments) const {
    std::vector<Literal> literals(arguments.begin(), arguments.end());
    XLAD_ASSIGN_OR_RETURN(const Literal result, hlo::Evaluate(code, literals));
    return ScalarsOf(result);
  }
  absl::StatusOr<Scalars> Apply(const KernelCode& code) {
    Scalars arguments;
    for (const KernelRead& read : code.reads) arguments.push_back(Load(read));
    return Apply(*code.code, arguments);
  }

  absl::Status Start(int s) {
    const Statement& statement = kernel_.statements[s];
    if (statement.is_product) {
      XLAD_ASSIGN_OR_RETURN(product_, ProductSums::Make(ProductOf(kernel_), memory_[0], memory_[1]));
      return absl::OkStatus();
    }
    if (statement.lanes == 1) {
      XLAD_ASSIGN_OR_RETURN(Scalars initial, Apply(statement.initial));
      accumulators_[s] = {std::move(initial)};
    } else {
      accumulators_[s].assign(statement.lanes, {Neutral(*statement.combine->entry())});
    }
    return absl::OkStatus();
  }

  absl::Status Combine(int s, Scalars* accumulators, const Scalars& values) {
    Scalars arguments = *accumulators;
    arguments.insert(arguments.end(), values.begin(), values.end());
    XLAD_ASSIGN_OR_RETURN(*accumulators, Apply(*kernel_.statements[s].combine, arguments));
    return absl::OkStatus();
  }

  absl::Status Compute(int s) {
    const Statement& statement = kernel_.statements[s];
    if (statement.is_product) {
      AddProduct();
      return absl::OkStatus();
    }
    XLAD_ASSIGN_OR_RETURN(const Scalars values, Apply(statement.value));
    if (!statement.is_reduction()) {
      Store(statement, values);
      return absl::OkStatus();
    }
    const int64_t lane = Indices()[statement.along.back()] % statement.lanes;
    return Combine(s, &accumulators_[s][lane], values);
  }

  // Adds one product to its sum. Each element of an array is moved once for each iteration of the bound loops.
  void AddProduct() {
    const Dims at = Indices();
    const ProductForm& form = product_->form();
    product_->Add(at[0], at[1], at[2], at[3]);
    const auto touch = [&](int array, int64_t place, int64_t* bytes) {
      if (place >= 0 && Touch(array, place)) *bytes += BytesOf(kernel_.arrays[array].type);
    };
    touch(0, form.Lhs(at[0], at[1], at[3]), &run_.bytes_read);
    touch(1, form.Rhs(at[0], at[2], at[3]), &run_.bytes_read);
    touch(2, form.Result(at[0], at[1], at[2]), &run_.bytes_written);
  }

  absl::Status Finish(int s) {
    const Statement& statement = kernel_.statements[s];
    if (statement.is_product) {
      XLAD_ASSIGN_OR_RETURN(memory_[2], product_->Result());
      return absl::OkStatus();
    }
    std::vector<Scalars>& lanes = accumulators_[s];
    for (size_t half = lanes.size() / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) XLAD_RETURN_IF_ERROR(Combine(s, &lanes[i], lanes[i + half]));
    }
    Scalars total = lanes[0];
    if (statement.lanes > 1) {
      XLAD_ASSIGN_OR_RETURN(Scalars initial, Apply(statement.initial));
      XLAD_RETURN_IF_ERROR(Combine(s, &initial, total));
      total = std::move(initial);
    }
    Store(statement, total);
    return absl::OkStatus();
  }

  const ScheduledKernel& scheduled_;
  const Kernel& kernel_;
  std::vector<int64_t> iterations_;                 // For each loop, the current iteration.
  std::vector<Array> memory_;                       // For each array, its contents.
  std::vector<std::vector<Scalars>> accumulators_;  // For each statement and lane, its partial results.
  std::unique_ptr<ProductSums> product_;  // If the kernel is a product.
  absl::flat_hash_set<std::pair<int, int64_t>> cached_;
  KernelRun run_;
};

}  // namespace

absl::StatusOr<KernelRun> InterpretKernel(const ScheduledKernel& kernel, const std::vector<Array>& inputs) {
  return Interpreter(kernel).Run(inputs);
}

}  // namespace xlad::compiler
