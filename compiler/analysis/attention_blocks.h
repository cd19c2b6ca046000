// How an attention is divided into blocks of rows, and which columns of a block are masked.
#pragma once

#include "proto/executable.pb.h"

namespace xlad::compiler {

// Sets block_rows, block_columns and zero_after_block_columns of an op that has everything else.
//
// A causal mask, or another comparison of row and column positions, makes all scores of the last columns of a block
// equal to a constant. If exp(constant - maximum of the row) is zero there, which is checked when the op runs, and all
// sums are over such values, these columns do not need to be computed. Other factors of these values are taken to be
// finite.
void ChooseBlocks(AttentionOp* op);

}  // namespace xlad::compiler
