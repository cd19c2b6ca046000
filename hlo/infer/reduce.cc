// Inference for reduce, scan, sort and map, which apply a scalar or slice computation along dimensions, and for topk,
// which has no computation.
#include "absl/strings/str_cat.h"
#include "hlo/infer/rules.h"

namespace xlad::hlo {

Inferred InferReduce(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectInputsAndInits(i));
  const int64_t n = i.operand_count() / 2;
  const Shape& first = i.operand(0)->shape();
  XLAD_RETURN_IF_ERROR(ExpectDimensions("reduce-dimensions", i.dimensions(), first.ndim()));
  Dims kept;
  for (int64_t d = 0; d < first.ndim(); ++d) {
    if (!Contains(i.dimensions(), d)) kept.push_back(first.dim(d));
  }
  std::vector<Shape> results;
  std::vector<ElementType> inputs, inits;
  for (int64_t k = 0; k < n; ++k) {
    const Shape& x = i.operand(k)->shape();
    const Shape& init = i.operand(n + k)->shape();
    if (x.dims() != first.dims()) {
      return Violation("reduce-same-sizes", absl::StrCat("inputs ", Brief(first), " and ", Brief(x)),
                       "inputs of the same sizes");
    }
    if (!init.is_scalar()) return Violation("reduce-init", absl::StrCat("initial value ", Brief(init)), "a scalar");
    results.emplace_back(init.type(), kept);
    inputs.push_back(x.type());
    inits.push_back(init.type());
  }
  XLAD_RETURN_IF_ERROR(ExpectCalled(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectReducer(i, 0, inputs, inits));
  return OneOrTuple(std::move(results));
}

namespace {

// A slice of `x` without dimension `d`.
Shape Without(const Shape& x, int64_t d) {
  Dims dims = x.dims();
  dims.erase(dims.begin() + d);
  return Shape(x.type(), std::move(dims));
}

absl::Status ScanLength(const Instruction& i, int64_t inputs, int64_t along, int64_t* length) {
  for (int64_t k = 0; k < inputs; ++k) {
    const Shape& x = i.operand(k)->shape();
    XLAD_RETURN_IF_ERROR(ExpectDimension("scan-dimension", along, x.ndim()));
    if (*length >= 0 && x.dim(along) != *length) {
      return Violation("scan-length",
                       absl::StrCat("inputs of sizes ", *length, " and ", x.dim(along), " along dimension ", along),
                       "equal sizes");
    }
    *length = x.dim(along);
  }
  return absl::OkStatus();
}

}  // namespace

// The operands are the inputs, then num_carries initial carries. The body takes slices of the inputs, then the carries,
// and returns slices of the outputs, then the carries. The results are the outputs, then the final carries.
Inferred InferScan(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  const int64_t carries = i.attributes().num_carries;
  const int64_t inputs = i.operand_count() - carries;
  if (carries < 0 || inputs < 1 || i.dimensions().size() != 1) {
    return Violation("scan-operands",
                     absl::StrCat("num_carries=", carries, " of ", i.operand_count(),
                                  " operands, dimensions=", Brief(i.dimensions())),
                     "at least one input before the carries, and one dimension");
  }
  const int64_t along = i.dimensions()[0];
  int64_t length = -1;
  XLAD_RETURN_IF_ERROR(ScanLength(i, inputs, along, &length));
  std::vector<Shape> arguments;
  for (int64_t k = 0; k < i.operand_count(); ++k) {
    const Shape& x = i.operand(k)->shape();
    arguments.push_back(k < inputs ? Without(x, along) : Shape(x.type(), x.dims()));
  }
  XLAD_RETURN_IF_ERROR(ExpectCalled(i, 1));
  XLAD_ASSIGN_OR_RETURN(const Signature body, SignatureOf(i, 0));
  XLAD_RETURN_IF_ERROR(ExpectTakes("scan-body", body, Pointers(arguments)));
  std::vector<Shape> results = body.result.is_tuple() ? body.result.tuple() : std::vector<Shape>{body.result};
  const int64_t outputs = std::ssize(results) - carries;
  bool fits = outputs >= 0;
  for (int64_t k = 0; fits && k < std::ssize(results); ++k) {
    const Shape& result = results[k];
    fits = k < outputs ? result.is_array() && along <= result.ndim()
                       : result.SameIgnoringLayout(arguments[inputs + k - outputs]);
  }
  if (!fits) {
    return Violation("scan-body", absl::StrCat("result ", Brief(body.result), " of %", body.name),
                     absl::StrCat("slices of outputs, then the ", carries, " carries with unchanged shapes"));
  }
  for (int64_t k = 0; k < outputs; ++k) {
    Shape& result = results[k];
    result.array().dims.insert(result.array().dims.begin() + along, length);
  }
  for (Shape& result : results) result.clear_layout();
  return OneOrTuple(std::move(results));
}

Inferred InferSort(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  const Shape& first = i.operand(0)->shape();
  if (i.dimensions().size() != 1) {
    return Violation("sort-dimension", absl::StrCat("dimensions=", Brief(i.dimensions())), "one dimension");
  }
  XLAD_RETURN_IF_ERROR(ExpectDimension("sort-dimension", i.dimensions()[0], first.ndim()));
  std::vector<Shape> results, arguments;
  for (const Instruction* const operand : i.operands()) {
    const Shape& x = operand->shape();
    if (x.dims() != first.dims()) {
      return Violation("sort-same-sizes", absl::StrCat("operands ", Brief(first), " and ", Brief(x)),
                       "operands of the same sizes");
    }
    results.emplace_back(x.type(), x.dims());
    arguments.insert(arguments.end(), 2, Shape(x.type(), {}));
  }
  XLAD_RETURN_IF_ERROR(ExpectCalled(i, 1));
  XLAD_ASSIGN_OR_RETURN(const Signature comparator, SignatureOf(i, 0));
  XLAD_RETURN_IF_ERROR(ExpectTakes("sort-comparator", comparator, Pointers(arguments)));
  if (!comparator.result.SameIgnoringLayout(Shape(ElementType::kPred, {}))) {
    return Violation("sort-comparator", absl::StrCat("result ", Brief(comparator.result), " of %", comparator.name),
                     "pred[]");
  }
  return OneOrTuple(std::move(results));
}

Inferred InferMap(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  std::vector<Shape> arguments;
  for (const Instruction* const operand : i.operands()) {
    if (operand->shape().dims() != i.operand(0)->shape().dims()) {
      return Violation("map-same-sizes",
                       absl::StrCat("operands ", Brief(i.operand(0)->shape()), " and ", Brief(operand->shape())),
                       "operands of the same sizes");
    }
    arguments.emplace_back(operand->shape().type(), Dims{});
  }
  XLAD_RETURN_IF_ERROR(ExpectCalled(i, 1));
  XLAD_ASSIGN_OR_RETURN(const Signature function, SignatureOf(i, 0));
  XLAD_RETURN_IF_ERROR(ExpectTakes("map-function", function, Pointers(arguments)));
  if (!function.result.is_scalar()) {
    return Violation("map-function", absl::StrCat("result ", Brief(function.result), " of %", function.name),
                     "a scalar");
  }
  if (i.operand_count() == 0) {  // Without operands, only the instruction's own shape has the sizes of the result.
    XLAD_RETURN_IF_ERROR(ExpectArrayResult(i));
    return Shape(function.result.type(), i.shape().dims());
  }
  const int64_t ndim = i.operand(0)->shape().ndim();
  // An empty list means all dimensions, as in XLA.
  const auto count = std::ssize(i.dimensions());
  bool all = count == 0 || count == ndim;
  for (int64_t d = 0; all && d < count; ++d) all = i.dimensions()[d] == d;
  if (!all) {
    return Violation("map-dimensions", absl::StrCat("dimensions=", Brief(i.dimensions())),
                     absl::StrCat("all ", ndim, " dimensions in order"));
  }
  return Shape(function.result.type(), i.operand(0)->shape().dims());
}

Inferred InferTopk(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0, kAnyType & ~kComplexes));  // Complex numbers are not ordered.
  const Shape& x = i.operand(0)->shape();
  const int64_t k = i.attributes().k;
  if (x.ndim() < 1 || k < 0 || k > x.dims().back()) {
    return Violation("topk-k", absl::StrCat("k=", k, " of ", Brief(x)), "k from 0 to the size of the last dimension");
  }
  Dims dims = x.dims();
  dims.back() = k;
  return Shape::Tuple({Shape(x.type(), dims), Shape(ElementType::kS32, dims)});
}

}  // namespace xlad::hlo
