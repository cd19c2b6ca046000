// The table of the attributes of HLO text.
#include "hlo/text/attribute_table.h"

#include <algorithm>
#include <array>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/containers.h"
#include "base/suggest.h"
#include "hlo/enum_names.h"
#include "hlo/text/parse.h"
#include "hlo/text/print.h"

namespace xlad::hlo {
namespace {

bool PrintNever(const Instruction&, std::string*) { return false; }

// Each pair of functions parses and prints one member of Attributes. The pairs are ordered by the kind of value.

template <auto Member>
bool ParseIntsOf(Parser& p, Instruction* i) { return ParseInts(p.lexer(), &(i->mutable_attributes().*Member)); }
template <auto Member>
bool PrintIntsOf(const Instruction& i, std::string* out) {
  const Dims& values = i.attributes().*Member;
  if (values.empty()) return false;
  AppendInts(values, out);
  return true;
}

// Members of an optional part of Attributes (dot, gather, scatter).
template <auto Part, auto Member>
bool ParseIntsIn(Parser& p, Instruction* i) {
  auto& part = i->mutable_attributes().*Part;
  if (!part.has_value()) part.emplace();
  return ParseInts(p.lexer(), &((*part).*Member));
}
template <auto Part, auto Member>
bool PrintIntsIn(const Instruction& i, std::string* out) {
  const auto& part = i.attributes().*Part;
  if (!part.has_value() || ((*part).*Member).empty()) return false;
  AppendInts((*part).*Member, out);
  return true;
}
// gather and scatter print these lists even if they are empty.
template <auto Part, auto Member>
bool PrintIntsAlwaysIn(const Instruction& i, std::string* out) {
  const auto& part = i.attributes().*Part;
  if (!part.has_value()) return false;
  AppendInts((*part).*Member, out);
  return true;
}
template <auto Part, auto Member>
bool ParseIntIn(Parser& p, Instruction* i) {
  auto& part = i->mutable_attributes().*Part;
  if (!part.has_value()) part.emplace();
  return p.lexer().Integer(&((*part).*Member));
}
template <auto Part, auto Member>
bool PrintIntIn(const Instruction& i, std::string* out) {
  const auto& part = i.attributes().*Part;
  if (!part.has_value()) return false;
  absl::StrAppend(out, (*part).*Member);
  return true;
}

template <auto Member>
bool ParseIntOf(Parser& p, Instruction* i) {
  int64_t value = 0;
  auto& member = i->mutable_attributes().*Member;
  using T = std::remove_reference_t<decltype(member)>;
  if (!(std::is_same_v<T, int32_t> ? p.lexer().Integer32(&value) : p.lexer().Integer(&value))) return false;
  member = static_cast<T>(value);
  return true;
}
// Printed unless it is `Default`.
template <auto Member, int64_t Default>
bool PrintIntOf(const Instruction& i, std::string* out) {
  const auto value = i.attributes().*Member;
  if (value == Default) return false;
  absl::StrAppend(out, value);
  return true;
}
template <auto Member>
bool PrintIntAlways(const Instruction& i, std::string* out) {
  absl::StrAppend(out, i.attributes().*Member);
  return true;
}

template <auto Member>
bool ParseBoolOf(Parser& p, Instruction* i) {
  return p.lexer().Bool(&(i->mutable_attributes().*Member));
}
template <auto Member, bool kPrinted = true>  // The attribute is printed only if its value is kPrinted.
bool PrintBoolOf(const Instruction& i, std::string* out) {
  if (i.attributes().*Member == kPrinted) out->append(kPrinted ? "true" : "false");
  return i.attributes().*Member == kPrinted;
}
template <auto Member>
bool PrintBoolAlways(const Instruction& i, std::string* out) {
  out->append(i.attributes().*Member ? "true" : "false");
  return true;
}

template <auto Member>
bool ParseStringOf(Parser& p, Instruction* i) { return p.lexer().String(&(i->mutable_attributes().*Member)); }
template <auto Member>
bool PrintStringOf(const Instruction& i, std::string* out) {
  if ((i.attributes().*Member).empty()) return false;
  AppendQuoted(i.attributes().*Member, out);
  return true;
}

// Parses a word, which must be one of `words`.
bool ParseWordOf(Lexer& lexer, Words words, std::string* value) {
  const char* const at = lexer.Here();
  const absl::string_view word = lexer.Word();
  if (word.empty() || !IndexOf(words, word).has_value()) {
    return lexer.FailAt(at, absl::StrCat("one of ", absl::StrJoin(words, ", ")));
  }
  *value = std::string(word);
  return true;
}
template <auto Member, const auto& Table>
bool ParseChoice(Parser& p, Instruction* i) {
  return ParseWordOf(p.lexer(), Table, &(i->mutable_attributes().*Member));
}
template <auto Member>
bool PrintChoice(const Instruction& i, std::string* out) {
  out->append(i.attributes().*Member);
  return !(i.attributes().*Member).empty();
}
template <typename Enum, auto Member, const auto& Table>
bool ParseEnum(Parser& p, Instruction* i) {
  std::string word;
  if (!ParseWordOf(p.lexer(), Table, &word)) return false;
  i->mutable_attributes().*Member = static_cast<Enum>(*IndexOf(Table, word));
  return true;
}

// A member whose type has its own functions to parse and print.
template <auto Member, auto Parse>
bool ParseWith(Parser& p, Instruction* i) { return Parse(p.lexer(), &(i->mutable_attributes().*Member)); }
template <auto Member, auto Append>
bool PrintAlways(const Instruction& i, std::string* out) {  // XLA requires the attribute even if its list is empty.
  Append(i.attributes().*Member, out);
  return true;
}
template <auto Member, auto Append>
bool PrintNonEmpty(const Instruction& i, std::string* out) {
  if ((i.attributes().*Member).empty()) return false;
  Append(i.attributes().*Member, out);
  return true;
}
template <auto Member, auto Parse>
bool ParseOptional(Parser& p, Instruction* i) { return Parse(p.lexer(), &(i->mutable_attributes().*Member).emplace()); }
template <auto Member, auto Append>
bool PrintOptional(const Instruction& i, std::string* out) {
  const auto& part = i.attributes().*Member;
  if (part.has_value()) Append(*part, out);
  return part.has_value();
}

// Attributes that are not stored in a single member.

bool PrintWindow(const Instruction& i, std::string* out) {
  const std::optional<Window>& window = i.attributes().window;
  if (!window.has_value() || window->empty()) return false;
  AppendWindow(*window, out);
  return true;
}

bool ParseDimensions(Parser& p, Instruction* i) {
  Dims dimensions;
  if (!ParseInts(p.lexer(), &dimensions)) return false;
  i->set_dimensions(std::move(dimensions));
  return true;
}
bool PrintDimensions(const Instruction& i, std::string* out) {
  // These opcodes always print their dimensions, even an empty list; others print them only if there are any.
  const bool always = i.opcode() == Opcode::kBroadcast || i.opcode() == Opcode::kReduce ||
                      i.opcode() == Opcode::kTranspose || i.opcode() == Opcode::kReverse ||
                      i.opcode() == Opcode::kMap || i.opcode() == Opcode::kSort ||
                      i.opcode() == Opcode::kConcatenate;
  if (!always && i.dimensions().empty()) return false;
  AppendInts(i.dimensions(), out);
  return true;
}
bool ParseIotaDimension(Parser& p, Instruction* i) {
  int64_t dimension = 0;
  if (!p.lexer().Integer(&dimension)) return false;
  i->set_dimensions({dimension});
  return true;
}
bool PrintIotaDimension(const Instruction& i, std::string* out) {
  if (i.dimensions().empty()) return false;
  absl::StrAppend(out, i.dimensions().front());
  return true;
}
bool ParseTupleIndex(Parser& p, Instruction* i) {
  int64_t index = 0;
  if (!p.lexer().Integer(&index)) return false;
  i->set_number(index);
  return true;
}
bool PrintTupleIndex(const Instruction& i, std::string* out) {
  absl::StrAppend(out, i.number());
  return true;
}
bool ParsePrecision(Parser& p, Instruction* i) {
  std::vector<std::string>& precision = i->mutable_attributes().operand_precision;
  return ParseBraced(p.lexer(), [&] {
    const absl::string_view word = p.lexer().PeekWord();
    const std::string lower = absl::AsciiStrToLower(word);  // Older dumps have upper-case words.
    if (!IndexOf(kPrecisions, lower).has_value()) return ParseWordOf(p.lexer(), kPrecisions, &precision.emplace_back());
    precision.push_back(lower);
    return p.lexer().AcceptWord(word);
  });
}
bool PrintPrecision(const Instruction& i, std::string* out) {
  const std::vector<std::string>& precision = i.attributes().operand_precision;
  if (precision.empty()) return false;
  absl::StrAppend(out, "{", absl::StrJoin(precision, ","), "}");
  return true;
}
bool PrintDirection(const Instruction& i, std::string* out) {
  absl::StrAppend(out, WordOf(kComparisons, i.attributes().comparison));
  return true;
}
bool PrintComparisonType(const Instruction& i, std::string* out) {
  absl::StrAppend(out, WordOf(kComparisonTypes, i.attributes().comparison_type));
  return i.attributes().comparison_type != ComparisonType::kDefault;
}
// Newer dumps have order=TOTAL, older ones type=TOTALORDER.
bool ParseOrder(Parser& p, Instruction* i) {
  std::string word;
  if (!ParseWordOf(p.lexer(), kComparisonOrders, &word)) return false;
  if (word == "TOTAL") i->mutable_attributes().comparison_type = ComparisonType::kFloatTotalOrder;
  return true;
}
bool ParseEpsilon(Parser& p, Instruction* i) {
  Literal literal;
  int64_t none = 0;
  if (p.lexer().Peek() == '{') return p.lexer().FailExpected("a number");
  if (!ParseLiteral(p.lexer(), Shape(ElementType::kF32, {}), &none, &literal)) return false;
  i->mutable_attributes().epsilon = literal.array.values<float>()[0];
  return true;
}
bool PrintEpsilon(const Instruction& i, std::string* out) {
  AppendFloat(i.attributes().epsilon, out);
  return true;
}
bool ParseChannel(Parser& p, Instruction* i) {
  return p.lexer().Integer(&i->mutable_attributes().channel_id.emplace());
}
bool PrintChannel(const Instruction& i, std::string* out) {
  if (i.attributes().channel_id.has_value()) absl::StrAppend(out, *i.attributes().channel_id);
  return i.attributes().channel_id.has_value();
}
bool ParseGroups(Parser& p, Instruction* i) {
  i->mutable_attributes().replica_groups = {};
  return ParseReplicaGroups(p.lexer(), &i->mutable_attributes().replica_groups);
}
bool PrintGroups(const Instruction& i, std::string* out) {
  AppendReplicaGroups(i.attributes().replica_groups, out);
  return true;
}
bool ParseOutfeedShape(Parser& p, Instruction* i) {
  return ParseShape(p.lexer(), &i->mutable_attributes().outfeed_shape);
}
bool PrintOutfeedShape(const Instruction& i, std::string* out) {
  const Shape& shape = i.attributes().outfeed_shape;
  if (shape.is_tuple() && shape.tuple().empty()) return false;
  out->append(shape.ToString());
  return true;
}
bool PrintLayoutConstraints(const Instruction& i, std::string* out) {
  // A call without operands may have an empty list of constraints, which differs from having no list.
  if (i.attributes().operand_layout_constraints.empty() && !i.attributes().constrain_layout) return false;
  AppendShapes(i.attributes().operand_layout_constraints, out);
  return true;
}
bool ParseLayoutConstraints(Parser& p, Instruction* i) {
  i->mutable_attributes().constrain_layout = true;
  return ParseShapes(p.lexer(), &i->mutable_attributes().operand_layout_constraints);
}
bool ParseBackendConfig(Parser& p, Instruction* i) {
  Attributes& attributes = i->mutable_attributes();
  if (p.lexer().Peek() == '{') {
    absl::string_view value;
    if (!p.lexer().Raw(&value)) return false;
    attributes.backend_config = std::string(value);
  } else if (!p.lexer().String(&attributes.backend_config)) {
    return false;
  }
  attributes.backend_config_is_json = IsBracedValue(attributes.backend_config);
  return true;
}
bool PrintBackendConfig(const Instruction& i, std::string* out) {
  const Attributes& attributes = i.attributes();
  if (attributes.backend_config.empty()) return false;
  if (attributes.backend_config_is_json && IsBracedValue(attributes.backend_config)) {
    out->append(attributes.backend_config);
  } else {
    AppendQuoted(attributes.backend_config, out);
  }
  return true;
}
bool ParseShardingOf(Parser& p, Instruction* i) {
  auto sharding = std::make_unique<OpSharding>();
  if (!ParseSharding(p.lexer(), sharding.get())) return false;
  i->set_sharding(std::move(sharding));
  return true;
}
bool PrintShardingOf(const Instruction& i, std::string* out) {
  if (i.sharding() != nullptr) AppendSharding(*i.sharding(), out);
  return i.sharding() != nullptr;
}
bool ParseFrontend(Parser& p, Instruction* i) {
  return ParseStringMap(p.lexer(), &i->mutable_frontend_attributes());
}
bool PrintFrontend(const Instruction& i, std::string* out) {
  if (i.frontend_attributes().empty()) return false;
  AppendStringMap(i.frontend_attributes(), out);
  return true;
}
bool ParseMetadataOf(Parser& p, Instruction* i) {
  std::shared_ptr<const Metadata> metadata;
  if (!p.ParseSharedMetadata(&metadata)) return false;
  i->set_metadata(std::move(metadata));
  return true;
}
bool PrintMetadataOf(const Instruction& i, std::string* out) {
  static const Metadata* const empty = new Metadata();
  if (i.metadata() == *empty) return false;
  AppendMetadata(i.metadata(), out);
  return true;
}
bool ParsePredecessors(Parser& p, Instruction* i) {
  return ParseBraced(p.lexer(), [&] {
    Instruction* before = nullptr;
    if (!p.ParseInstructionReference(&before)) return false;
    i->AddControlPredecessor(before);
    return true;
  });
}
bool PrintPredecessors(const Instruction& i, std::string* out) {
  if (i.control_predecessors().empty()) return false;
  const auto name = [](std::string* o, const Instruction* before) { absl::StrAppend(o, "%", before->name()); };
  absl::StrAppend(out, "{", absl::StrJoin(i.control_predecessors(), ", ", name), "}");
  return true;
}

// A called computation: number `Slot` of `Slots`.
template <size_t Slot, size_t Slots>
bool ParseCalled(Parser& p, Instruction* i) {
  std::vector<Computation*>& called = i->mutable_called();
  if (called.size() < Slots) called.resize(Slots, nullptr);
  return p.ParseComputationReference(&called[Slot]);
}
bool PrintCalledName(const Instruction& i, size_t slot, std::string* out) {
  if (slot >= i.called().size()) return false;
  absl::StrAppend(out, "%", i.called()[slot]->name());
  return true;
}
template <size_t Slot>
bool PrintCalled(const Instruction& i, std::string* out) { return PrintCalledName(i, Slot, out); }
bool ParseCalledList(Parser& p, Instruction* i) {
  return ParseBraced(p.lexer(), [&] { return p.ParseComputationReference(&i->mutable_called().emplace_back()); });
}
bool PrintCalledList(const Instruction& i, std::string* out) {
  if (i.called().empty()) return false;
  const auto name = [](std::string* o, const Computation* called) { absl::StrAppend(o, "%", called->name()); };
  absl::StrAppend(out, "{", absl::StrJoin(i.called(), ", ", name), "}");
  return true;
}
// The branches of a conditional on a pred are called true_computation and false_computation.
bool IsTwoWay(const Instruction& i) {
  return i.called().size() == 2 && i.operand_count() > 0 && i.operand(0)->shape().is_array() &&
         i.operand(0)->shape().type() == ElementType::kPred;
}
template <size_t Slot>
bool PrintTwoWay(const Instruction& i, std::string* out) { return IsTwoWay(i) && PrintCalledName(i, Slot, out); }
bool PrintBranches(const Instruction& i, std::string* out) { return !IsTwoWay(i) && PrintCalledList(i, out); }

using enum Opcode;
constexpr Opcode kWithDimensions[] = {
    kBroadcast, kConcatenate, kReduce, kReverse, kSort, kTranspose, kMap, kAllGather, kAllGatherStart, kReduceScatter,
    kAllToAll, kGetDimensionSize, kSetDimensionSize, kScan, kShuffle, kTopk, kRaggedAllToAll, kReshape, kBitcast,
    kDynamicReshape};
constexpr Opcode kIotaOnly[] = {kIota};
constexpr Opcode kGteOnly[] = {kGetTupleElement};
constexpr Opcode kWindowed[] = {kReduceWindow, kConvolution, kSelectAndScatter, kCustomCall};
constexpr Opcode kConvolutions[] = {kConvolution, kCustomCall};
constexpr Opcode kSliceOnly[] = {kSlice};
constexpr Opcode kDynamicSliceOnly[] = {kDynamicSlice};
constexpr Opcode kPadOnly[] = {kPad};
constexpr Opcode kDots[] = {kDot, kRaggedDot, kScaledDot};
constexpr Opcode kRaggedDotOnly[] = {kRaggedDot};
constexpr Opcode kPrecise[] = {kDot, kRaggedDot, kScaledDot, kConvolution, kCustomCall};
constexpr Opcode kAlgorithmic[] = {kDot, kRaggedDot, kScaledDot, kConvolution};
constexpr Opcode kGatherOnly[] = {kGather};
constexpr Opcode kScatterOnly[] = {kScatter};
constexpr Opcode kIndexed[] = {kGather, kScatter};
constexpr Opcode kCompareOnly[] = {kCompare};
constexpr Opcode kReducePrecisionOnly[] = {kReducePrecision};
constexpr Opcode kBatchNorms[] = {kBatchNormTraining, kBatchNormInference, kBatchNormGrad};
constexpr Opcode kRngOnly[] = {kRng};
constexpr Opcode kRngBitsOnly[] = {kRngBitGenerator};
constexpr Opcode kFftOnly[] = {kFft};
constexpr Opcode kTriangular[] = {kTriangularSolve};
constexpr Opcode kLowerHalf[] = {kTriangularSolve, kCholesky};
constexpr Opcode kTopkOnly[] = {kTopk};
constexpr Opcode kSortOnly[] = {kSort};
constexpr Opcode kScanOnly[] = {kScan};
constexpr Opcode kChannels[] = {
    kAllReduce, kAllReduceStart, kReduceScatter, kCollectiveReduce, kAllGather, kAllGatherStart, kAllToAll,
    kRaggedAllToAll, kCollectivePermute, kCollectivePermuteStart, kCollectiveBroadcast, kSend, kSendDone, kRecv,
    kRecvDone, kAllReduceDone, kAllGatherDone, kCollectivePermuteDone};
constexpr Opcode kGrouped[] = {kAllReduce, kAllReduceStart, kReduceScatter, kCollectiveReduce, kAllGather,
                               kAllGatherStart, kAllToAll, kRaggedAllToAll, kCollectiveBroadcast};
constexpr Opcode kPermutes[] = {kCollectivePermute, kCollectivePermuteStart};
constexpr Opcode kPointToPoint[] = {kSend, kSendDone, kRecv, kRecvDone};
constexpr Opcode kInfeedOnly[] = {kInfeed};
constexpr Opcode kOutfeedOnly[] = {kOutfeed};
constexpr Opcode kCustomOnly[] = {kCustomCall};
constexpr Opcode kAliasing[] = {kCustomCall, kFusion, kCall, kAsyncStart, kAsyncUpdate};
constexpr Opcode kFusionOnly[] = {kFusion};
constexpr Opcode kAsyncs[] = {kAsyncStart, kAsyncUpdate, kAsyncDone};
constexpr Opcode kParameterOnly[] = {kParameter};
constexpr Opcode kWhileOnly[] = {kWhile};
constexpr Opcode kSelectAndScatterOnly[] = {kSelectAndScatter};
constexpr Opcode kConditionalOnly[] = {kConditional};
constexpr Opcode kCallers[] = {kFusion, kAsyncStart, kAsyncUpdate, kAsyncDone};
constexpr Opcode kAppliers[] = {kReduce, kReduceWindow, kScatter, kSort, kMap, kTopk, kScan, kCall, kAllReduce,
                                kAllReduceStart, kReduceScatter, kCollectiveReduce};

using A = Attributes;
using Dot = DotDimensions;
using Gather = GatherDimensions;
using Scatter = ScatterDimensions;

#define XLAD_INTS(part, type, member) ParseIntsIn<&A::part, &type::member>, PrintIntsIn<&A::part, &type::member>
#define XLAD_INTS_ALWAYS(part, type, member) \
  ParseIntsIn<&A::part, &type::member>, PrintIntsAlwaysIn<&A::part, &type::member>

constexpr AttributeRow kAttributeRows[] = {
    {"iota_dimension", kIotaOnly, ParseIotaDimension, PrintIotaDimension},
    {"index", kGteOnly, ParseTupleIndex, PrintTupleIndex},
    {"window", kWindowed, ParseOptional<&A::window, ParseWindow>, PrintWindow},
    {"dim_labels", kConvolutions, ParseOptional<&A::convolution, ParseConvolutionDimensions>,
     PrintOptional<&A::convolution, AppendConvolutionDimensions>},
    {"feature_group_count", kConvolutions, ParseIntOf<&A::feature_group_count>, PrintIntOf<&A::feature_group_count, 1>},
    {"batch_group_count", kConvolutions, ParseIntOf<&A::batch_group_count>, PrintIntOf<&A::batch_group_count, 1>},
    {"slice", kSliceOnly, ParseWith<&A::slice, ParseSlice>, PrintAlways<&A::slice, AppendSlice>},
    {"dynamic_slice_sizes", kDynamicSliceOnly, ParseIntsOf<&A::slice_sizes>, PrintAlways<&A::slice_sizes, AppendInts>},
    {"padding", kPadOnly, ParseWith<&A::padding, ParsePadding>, PrintNonEmpty<&A::padding, AppendPadding>},
    {"lhs_batch_dims", kDots, XLAD_INTS(dot, Dot, lhs_batch)},
    {"lhs_contracting_dims", kDots, XLAD_INTS(dot, Dot, lhs_contracting)},
    {"rhs_batch_dims", kDots, XLAD_INTS(dot, Dot, rhs_batch)},
    {"rhs_contracting_dims", kDots, XLAD_INTS(dot, Dot, rhs_contracting)},
    {"lhs_ragged_dims", kRaggedDotOnly, ParseIntsOf<&A::ragged_dims>, PrintIntsOf<&A::ragged_dims>},
    {"rhs_group_dims", kRaggedDotOnly, ParseIntsOf<&A::group_dims>, PrintIntsOf<&A::group_dims>},
    {"operand_precision", kPrecise, ParsePrecision, PrintPrecision},
    {"algorithm", kAlgorithmic, ParseChoice<&A::algorithm, kDotAlgorithms>, PrintChoice<&A::algorithm>},
    {"offset_dims", kGatherOnly, XLAD_INTS_ALWAYS(gather, Gather, offset_dims)},
    {"collapsed_slice_dims", kGatherOnly, XLAD_INTS_ALWAYS(gather, Gather, collapsed_slice_dims)},
    {"start_index_map", kGatherOnly, XLAD_INTS_ALWAYS(gather, Gather, start_index_map)},
    {"operand_batching_dims", kGatherOnly, XLAD_INTS(gather, Gather, operand_batching_dims)},
    {"start_indices_batching_dims", kGatherOnly, XLAD_INTS(gather, Gather, start_indices_batching_dims)},
    {"index_vector_dim", kGatherOnly, ParseIntIn<&A::gather, &Gather::index_vector_dim>,
     PrintIntIn<&A::gather, &Gather::index_vector_dim>},
    {"slice_sizes", kGatherOnly, ParseIntsOf<&A::slice_sizes>, PrintAlways<&A::slice_sizes, AppendInts>},
    {"update_window_dims", kScatterOnly, XLAD_INTS_ALWAYS(scatter, Scatter, update_window_dims)},
    {"inserted_window_dims", kScatterOnly, XLAD_INTS_ALWAYS(scatter, Scatter, inserted_window_dims)},
    {"scatter_dims_to_operand_dims", kScatterOnly, XLAD_INTS_ALWAYS(scatter, Scatter, scatter_dims_to_operand_dims)},
    {"input_batching_dims", kScatterOnly, XLAD_INTS(scatter, Scatter, input_batching_dims)},
    {"scatter_indices_batching_dims", kScatterOnly, XLAD_INTS(scatter, Scatter, scatter_indices_batching_dims)},
    {"index_vector_dim", kScatterOnly, ParseIntIn<&A::scatter, &Scatter::index_vector_dim>,
     PrintIntIn<&A::scatter, &Scatter::index_vector_dim>},
    {"indices_are_sorted", kIndexed, ParseBoolOf<&A::indices_are_sorted>, PrintBoolOf<&A::indices_are_sorted>},
    {"unique_indices", kIndexed, ParseBoolOf<&A::unique_indices>, PrintBoolOf<&A::unique_indices>},
    {"direction", kCompareOnly, ParseEnum<Comparison, &A::comparison, kComparisons>, PrintDirection},
    {"type", kCompareOnly, ParseEnum<ComparisonType, &A::comparison_type, kComparisonTypes>, PrintComparisonType},
    {"order", kCompareOnly, ParseOrder, PrintNever},
    {"exponent_bits", kReducePrecisionOnly, ParseIntOf<&A::exponent_bits>, PrintIntAlways<&A::exponent_bits>},
    {"mantissa_bits", kReducePrecisionOnly, ParseIntOf<&A::mantissa_bits>, PrintIntAlways<&A::mantissa_bits>},
    {"epsilon", kBatchNorms, ParseEpsilon, PrintEpsilon},
    {"feature_index", kBatchNorms, ParseIntOf<&A::feature_index>, PrintIntAlways<&A::feature_index>},
    {"distribution", kRngOnly, ParseChoice<&A::rng_distribution, kDistributions>, PrintChoice<&A::rng_distribution>},
    {"algorithm", kRngBitsOnly, ParseChoice<&A::rng_algorithm, kRngAlgorithms>, PrintChoice<&A::rng_algorithm>},
    {"fft_type", kFftOnly, ParseChoice<&A::fft_type, kFftTypes>, PrintChoice<&A::fft_type>},
    {"fft_length", kFftOnly, ParseIntsOf<&A::fft_length>, PrintIntsOf<&A::fft_length>},
    {"left_side", kTriangular, ParseBoolOf<&A::left_side>, PrintBoolOf<&A::left_side>},
    {"lower", kLowerHalf, ParseBoolOf<&A::lower>, PrintBoolOf<&A::lower>},
    {"unit_diagonal", kTriangular, ParseBoolOf<&A::unit_diagonal>, PrintBoolOf<&A::unit_diagonal>},
    {"transpose_a", kTriangular, ParseChoice<&A::transpose_a, kTransposes>, PrintChoice<&A::transpose_a>},
    {"k", kTopkOnly, ParseIntOf<&A::k>, PrintIntAlways<&A::k>},
    {"largest", kTopkOnly, ParseBoolOf<&A::largest>, PrintBoolAlways<&A::largest>},
    {"channel_id", kChannels, ParseChannel, PrintChannel},
    {"replica_groups", kGrouped, ParseGroups, PrintGroups},
    {"source_target_pairs", kPermutes, ParseWith<&A::source_target_pairs, ParsePairs>,
     PrintAlways<&A::source_target_pairs, AppendPairs>},
    {"dimensions", kWithDimensions, ParseDimensions, PrintDimensions},
    {"is_stable", kSortOnly, ParseBoolOf<&A::is_stable>, PrintBoolOf<&A::is_stable>},
    {"is_stable", kTopkOnly, ParseBoolOf<&A::is_stable>, PrintBoolOf<&A::is_stable, false>},  // The default is true.
    {"num_carries", kScanOnly, ParseIntOf<&A::num_carries>, PrintIntAlways<&A::num_carries>},
    {"is_reverse", kScanOnly, ParseBoolOf<&A::is_reverse>, PrintBoolOf<&A::is_reverse>},
    {"is_associative", kScanOnly, ParseChoice<&A::is_associative, kTriStates>, PrintChoice<&A::is_associative>},
    {"constrain_layout", kGrouped, ParseBoolOf<&A::constrain_layout>, PrintBoolOf<&A::constrain_layout>},
    {"use_global_device_ids", kGrouped, ParseBoolOf<&A::use_global_device_ids>, PrintBoolOf<&A::use_global_device_ids>},
    {"is_host_transfer", kPointToPoint, ParseBoolOf<&A::is_host_transfer>, PrintBoolOf<&A::is_host_transfer>},
    {"infeed_config", kInfeedOnly, ParseStringOf<&A::infeed_config>, PrintStringOf<&A::infeed_config>},
    {"outfeed_shape", kOutfeedOnly, ParseOutfeedShape, PrintOutfeedShape},
    {"outfeed_config", kOutfeedOnly, ParseStringOf<&A::outfeed_config>, PrintStringOf<&A::outfeed_config>},
    {"kind", kFusionOnly, ParseChoice<&A::fusion_kind, kFusionKinds>, PrintChoice<&A::fusion_kind>},
    {"custom_call_target", kCustomOnly, ParseStringOf<&A::custom_call_target>, PrintStringOf<&A::custom_call_target>},
    {"operand_layout_constraints", kCustomOnly, ParseLayoutConstraints, PrintLayoutConstraints},
    {"custom_call_has_side_effect", kCustomOnly, ParseBoolOf<&A::has_side_effect>, PrintBoolOf<&A::has_side_effect>},
    {"output_to_operand_aliasing", kAliasing, ParseWith<&A::output_operand_aliasing, ParseOperandAliasing>,
     PrintNonEmpty<&A::output_operand_aliasing, AppendOperandAliasing>},
    {"api_version", kCustomOnly, ParseChoice<&A::api_version, kApiVersions>, PrintChoice<&A::api_version>},
    {"async_execution_thread", kAsyncs, ParseStringOf<&A::async_execution_thread>,
     PrintStringOf<&A::async_execution_thread>},
    {"parameter_replication", kParameterOnly, ParseWith<&A::parameter_replication, ParseBools>,
     PrintNonEmpty<&A::parameter_replication, AppendBools>},
    {"condition", kWhileOnly, ParseCalled<0, 2>, PrintCalled<0>},
    {"body", kWhileOnly, ParseCalled<1, 2>, PrintCalled<1>},
    {"select", kSelectAndScatterOnly, ParseCalled<0, 2>, PrintCalled<0>},
    {"scatter", kSelectAndScatterOnly, ParseCalled<1, 2>, PrintCalled<1>},
    {"true_computation", kConditionalOnly, ParseCalled<0, 2>, PrintTwoWay<0>},
    {"false_computation", kConditionalOnly, ParseCalled<1, 2>, PrintTwoWay<1>},
    {"branch_computations", kConditionalOnly, ParseCalledList, PrintBranches},
    {"calls", kCallers, ParseCalled<0, 1>, PrintCalled<0>},
    {"to_apply", kAppliers, ParseCalled<0, 1>, PrintCalled<0>},
    {"to_apply", kCustomOnly, ParseCalled<0, 1>, PrintNever},
    {"called_computations", kCustomOnly, ParseCalledList, PrintCalledList},
    {"sharding", {}, ParseShardingOf, PrintShardingOf},
    {"frontend_attributes", {}, ParseFrontend, PrintFrontend},
    {"control-predecessors", {}, ParsePredecessors, PrintPredecessors},
    {"metadata", {}, ParseMetadataOf, PrintMetadataOf},
    {"backend_config", {}, ParseBackendConfig, PrintBackendConfig},
};

#undef XLAD_INTS
#undef XLAD_INTS_ALWAYS

constexpr absl::string_view kCarried[] = {
    "result_accuracy", "origin", "statistics", "schedule", "sparsity", "sparsity_config", "padding_type",
    "is_composite", "delta", "cross_program_prefetch_index", "is_cross_program_prefetch", "conv_kind", "mode",
    "domain", "has_dynamic_root", "convolution_kind", "inferred_dimension",
    "literal", "slice_sizes", "async_group_id", "all_reduce_id", "barrier"};

}  // namespace

const std::vector<const AttributeRow*>& AttributeRows(Opcode opcode) {
  static const auto* const by_opcode = [] {
    auto* const rows = new std::vector<std::vector<const AttributeRow*>>(OpcodeCount());
    for (const AttributeRow& row : kAttributeRows) {
      for (int o = 0; o < OpcodeCount(); ++o) {
        const bool may = row.opcodes.empty() || Contains(row.opcodes, static_cast<Opcode>(o));
        if (may) (*rows)[o].push_back(&row);
      }
    }
    return rows;
  }();
  return (*by_opcode)[Index(opcode)];
}

bool IsCarriedAttribute(absl::string_view name) { return Contains(kCarried, name); }

std::vector<absl::string_view> AttributeNames() {
  std::vector<absl::string_view> names(std::begin(kCarried), std::end(kCarried));
  for (const AttributeRow& row : kAttributeRows) names.push_back(row.name);
  return names;
}

std::string Suggestion(absl::string_view name, absl::Span<const absl::string_view> names) {
  const std::string best = NearestName(name, {names.begin(), names.end()});
  return best.empty() ? "" : absl::StrCat(", did you mean \"", best, "\"?");
}

}  // namespace xlad::hlo
