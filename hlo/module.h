// The program: a module has computations, a computation has instructions. The vocabulary is that of XLA's HLO.
//
// Example: a module with two computations. The entry has three instructions; `sum` is its root and calls `add`.
//
//   HloModule m
//   add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
//   ENTRY main {
//     x = f32[8] parameter(0)
//     zero = f32[] constant(0)
//     ROOT sum = f32[] reduce(x, zero), dimensions={0}, to_apply=add
//   }
//
// The instruction sum has opcode() kReduce, shape() f32[], operands() {x, zero}, dimensions() {0} and called() {add};
// x->users() is {sum}. hlo/text/text.h reads and prints this text, hlo/build/builder.h makes instructions in code, and
// hlo/verify/verifier.h checks that a module is well-formed.
//
// Ownership: a Module owns its Computations, and a Computation owns its Instructions. Every other pointer is a
// reference that is valid as long as the module. The methods below keep operands and users consistent.
// Threads: one thread at a time may use a module that changes; any number of threads may read a module that does not
// change.
#pragma once

#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hlo/attributes.h"
#include "hlo/bump.h"
#include "hlo/opcode.h"
#include "hlo/shape.h"

namespace xlad::hlo {

class Computation;
class Module;

class Instruction {  // This class has more than 25 methods because each attribute has a getter and a setter.
 public:
  Instruction(Opcode opcode, Shape shape) : opcode_(opcode), shape_(std::move(shape)) {}
  Instruction(const Instruction&) = delete;
  Instruction& operator=(const Instruction&) = delete;
  // Frees the memory unless it belongs to a module (Module::NewInstruction).
  static void operator delete(Instruction* instruction, std::destroying_delete_t);

  Opcode opcode() const { return opcode_; }
  const std::string& name() const { return name_; }     // Unique in the module, without '%'.
  void set_name(std::string name) { name_ = std::move(name); }
  const Shape& shape() const { return shape_; }
  Shape& mutable_shape() { return shape_; }
  Computation* parent() const { return parent_; }

  absl::Span<Instruction* const> operands() const { return operands_; }
  Instruction* operand(int64_t i) const { return operands_[i]; }
  int64_t operand_count() const { return std::ssize(operands_); }
  // Lists each user once, in the order in which the uses were added.
  absl::Span<Instruction* const> users() const { return users_; }
  void ReplaceOperand(int64_t i, Instruction* with);
  void AppendOperand(Instruction* operand);
  // Removes all operands. Used before the instruction itself is removed (Computation::RemoveAll).
  void DropOperands();
  // Replaces this instruction by `with` in all its users except `with`, and as the root of its computation.
  void ReplaceAllUsesWith(Instruction* with);

  const std::vector<Instruction*>& control_predecessors() const { return control_predecessors_; }
  void AddControlPredecessor(Instruction* before) { control_predecessors_.push_back(before); }
  void ClearControlPredecessors() { control_predecessors_.clear(); }

  // The called computations, in the order of the attributes (for while: condition, body).
  const std::vector<Computation*>& called() const { return called_; }
  std::vector<Computation*>& mutable_called() { return called_; }

  // The attributes that many opcodes have are members; attributes() has the others.
  const Dims& dimensions() const { return dimensions_; }  // broadcast, transpose, reduce, concatenate, iota, sort ...
  void set_dimensions(Dims dimensions) { dimensions_ = std::move(dimensions); }
  int64_t number() const { return number_; }              // The number of the parameter or tuple element.
  void set_number(int64_t number) { number_ = number; }
  const std::shared_ptr<const Literal>& literal() const { return literal_; }  // Null if it is not a constant.
  void set_literal(std::shared_ptr<const Literal> literal) { literal_ = std::move(literal); }
  // Returns a shared empty object if no attribute is set.
  const Attributes& attributes() const;
  Attributes& mutable_attributes();

  const Metadata& metadata() const;
  // Makes a new copy for this instruction in each call, because the metadata may be shared.
  Metadata& mutable_metadata();
  // Several instructions may share the object. Null if the instruction has no metadata.
  const std::shared_ptr<const Metadata>& shared_metadata() const { return metadata_; }
  void set_metadata(std::shared_ptr<const Metadata> metadata) { metadata_ = std::move(metadata); }
  const StringMap& frontend_attributes() const { return frontend_attributes_; }
  StringMap& mutable_frontend_attributes() { return frontend_attributes_; }
  const OpSharding* sharding() const { return sharding_.get(); }
  void set_sharding(std::unique_ptr<OpSharding> sharding) { sharding_ = std::move(sharding); }

  // The line and column of the instruction in the parsed text, counted from 1. Both are 0 if the instruction comes from
  // a proto or was made in code.
  int line() const { return line_; }
  int column() const { return column_; }
  void set_place(int line, int column) {
    line_ = line;
    column_ = column;
  }

  // Copies everything except the name, the operands, the users, the control predecessors and the parent. The copy calls
  // the same computations.
  std::unique_ptr<Instruction> CloneWithoutOperands() const;
  // One line of HLO text.
  std::string ToString() const;

 private:
  friend class Computation;
  friend class Module;
  void RemoveUser(Instruction* user);

  Opcode opcode_;
  Shape shape_;
  std::string name_;
  Computation* parent_ = nullptr;
  absl::InlinedVector<Instruction*, 2> operands_, users_;
  std::vector<Instruction*> control_predecessors_;
  std::vector<Computation*> called_;
  Dims dimensions_;
  int64_t number_ = 0;
  std::shared_ptr<const Literal> literal_;
  std::unique_ptr<Attributes> attributes_;
  std::shared_ptr<const Metadata> metadata_;
  StringMap frontend_attributes_;
  std::unique_ptr<OpSharding> sharding_;
  int line_ = 0, column_ = 0;
  bool in_module_memory_ = false;
};

class Computation {
 public:
  explicit Computation(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  Module* parent() const { return parent_; }

  // Operands precede their users.
  const std::vector<std::unique_ptr<Instruction>>& instructions() const { return instructions_; }
  const std::vector<Instruction*>& parameters() const { return parameters_; }  // Indexed by parameter number.
  Instruction* parameter(int64_t i) const { return parameters_[i]; }
  Instruction* root() const { return root_; }
  void set_root(Instruction* root) { root_ = root; }

  // Appends `instruction` with `operands`, and changes its name if it is empty or already used in the module. A
  // parameter is entered in parameters() unless its number is negative, taken or far above the number of parameters;
  // the verifier reports such numbers.
  Instruction* Add(std::unique_ptr<Instruction> instruction, absl::Span<Instruction* const> operands = {});
  // Removes an instruction that has no users and is neither the root nor a parameter.
  void Remove(Instruction* instruction);
  // Removes several instructions in one pass over the computation. Remove needs a pass for each. Their users must all
  // be among them, and neither the root nor a parameter may be.
  void RemoveAll(const absl::flat_hash_set<const Instruction*>& instructions);
  // Removes the instructions that neither the root nor a side effect depends on, except parameters. Returns the number
  // of removed instructions.
  int64_t RemoveDead();
  // Restores the order of operands and control predecessors before users after edits: an instruction that comes after
  // one of its users moves to a place before the first of them. An order that is already valid does not change. There
  // must be no cycle (XLAD_CHECK).
  void SortTopologically();
  // Reorders the instructions. `order` must list each instruction once, operands before users (XLAD_CHECK).
  void SetOrder(absl::Span<Instruction* const> order);

  Shape ProgramResult() const { return root_->shape(); }
  bool is_fusion() const { return is_fusion_; }
  void set_is_fusion(bool is_fusion) { is_fusion_ = is_fusion; }
  const std::string& execution_thread() const { return execution_thread_; }
  void set_execution_thread(std::string thread) { execution_thread_ = std::move(thread); }

 private:
  friend class Module;
  void EnterParameter(Instruction* parameter);
  void Erase(const absl::flat_hash_set<const Instruction*>& gone);

  std::string name_;
  Module* parent_ = nullptr;
  std::vector<std::unique_ptr<Instruction>> instructions_;
  std::vector<Instruction*> parameters_;       // An element is null if its number is missing.
  std::vector<Instruction*> late_parameters_;  // Parameters whose numbers are negative or far above the others.
  Instruction* root_ = nullptr;
  bool is_fusion_ = false;
  std::string execution_thread_;
};

struct InputOutputAlias {
  Dims output_index;
  int64_t parameter = 0;
  Dims parameter_index;
  bool must_alias = false;
  friend bool operator==(const InputOutputAlias&, const InputOutputAlias&) = default;
};
struct BufferDonor {
  int64_t parameter = 0;
  Dims parameter_index;
  friend bool operator==(const BufferDonor&, const BufferDonor&) = default;
};

// The stack-frame tables of newer dumps. Ids count from 1, as in the text. parent_frame_id is 0 for a frame without a
// parent; the text has this number plus one.
struct StackFrames {
  struct Location {
    int64_t file_name_id = 0, function_name_id = 0, line = 0, end_line = 0, column = 0, end_column = 0;
    friend bool operator==(const Location&, const Location&) = default;
  };
  struct Frame {
    int64_t file_location_id = 0, parent_frame_id = 0;
    friend bool operator==(const Frame&, const Frame&) = default;
  };
  std::vector<std::string> file_names, function_names;
  std::vector<Location> locations;
  std::vector<Frame> frames;
  bool empty() const { return frames.empty() && locations.empty() && file_names.empty() && function_names.empty(); }
  friend bool operator==(const StackFrames&, const StackFrames&) = default;
};

class Module {
 public:
  explicit Module(std::string name) : name_(std::move(name)) {}
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  // Callees precede callers and the entry is last. After edits that add calls, SortComputations() restores this order.
  const std::vector<std::unique_ptr<Computation>>& computations() const { return computations_; }
  Computation* entry() const { return entry_; }
  void set_entry(Computation* entry) { entry_ = entry; }
  // Changes the name of the computation, and those of its instructions, if they are already used.
  Computation* Add(std::unique_ptr<Computation> computation);
  // Removes the computations that the entry does not reach by calls. Returns their number.
  int64_t RemoveUnusedComputations();
  void SortComputations();
  // Returns `base` if it is not used by an instruction. Otherwise returns an unused name with the number at its end
  // (add.12) added or replaced. The result counts as used from then on, even after its instruction is removed.
  std::string UniqueName(absl::string_view base);
  // Reserves memory for `count` names.
  void ReserveNames(size_t count) { names_.reserve(count); }
  // Makes an instruction in the module's own memory, which is freed with the module and not before. This is cheaper
  // than separate allocations when a large program is read. Add it to a computation of this module.
  std::unique_ptr<Instruction> NewInstruction(Opcode opcode, Shape shape);

  std::unique_ptr<Module> Clone() const;
  // Copies `computation`, which may belong to another module, and all computations that it calls into this module.
  Computation* CloneComputation(const Computation& computation, absl::string_view name);

  // Header attributes.
  bool is_scheduled = false;
  int64_t replica_count = 1, num_partitions = 1;
  std::vector<InputOutputAlias> input_output_alias;
  std::vector<BufferDonor> buffer_donors;
  StringMap frontend_attributes;
  std::vector<bool> propagate_to_parameters, propagate_to_output;  // allow_spmd_sharding_propagation_to_*
  bool alias_passthrough_params = false;
  // entry_computation_layout of the text or proto. If has_entry_layout is false, the entry's shapes apply.
  std::vector<Shape> entry_parameter_layouts;
  Shape entry_result_layout;
  bool has_entry_layout = false;
  StackFrames stack_frames;
  std::string other;  // Header attributes without a meaning in xlad, as canonical text "a=b, c=d".

  // The source of an instruction for messages: the innermost stack frame ("model.py:57 (Mlp.step)"), or the metadata's
  // source_file and line, or op_name, or "" if none is known.
  std::string SourceOf(const Instruction& instruction) const;

 private:
  struct NameState {
    bool used = false;
    int64_t next = 1;  // The next N to try for a name "NAME.N".
  };
  using Names = absl::flat_hash_map<absl::string_view, NameState>;  // The keys are in name_memory_.
  friend class Computation;
  NameState& StateOf(Names* names, absl::string_view name);
  bool TakeName(absl::string_view name);  // Returns false if an instruction already has the name.
  std::string Unique(Names* names, absl::string_view base);
  void CopyNames(const Names& from, Names* to);

  std::string name_;
  Bump instruction_memory_, name_memory_;  // Declared first, so that they are destroyed last.
  std::vector<std::unique_ptr<Computation>> computations_;
  Computation* entry_ = nullptr;
  Names names_, computation_names_;
};

}  // namespace xlad::hlo
